package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/session"
)

// conversation is a session that this server has opened. Jobs of its lane, and the end, open and close it.
type conversation struct {
	id     string
	quoted []byte // the id as JSON
	handle *host.Session
	log    *session.Log
	deltas bool

	cut    context.CancelFunc // ends the follower at once
	ending chan struct{}      // closed when the log won't grow any more
	done   chan struct{}      // closed when the follower has ended

	mu       sync.Mutex
	receipts map[string]chan struct{} // of messages whose prompt isn't answered yet
}

func (s *Server) find(id string) *conversation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[id]
}

func (s *Server) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// open gives the session, from this server, from the store, or with create a new one.
func (s *Server) open(ctx context.Context, id string, set *settings, create bool) (*conversation, error) {
	if c := s.find(id); c != nil {
		return c, nil
	}
	if s.isClosing() {
		return nil, errShuttingDown
	}
	if _, err := session.FileName(id); err != nil {
		return nil, &paramError{"sessionId", err.Error()}
	}
	err := s.cfg.Own(id)
	stored := err == nil
	if errors.Is(err, session.ErrNotFound) {
		if !create {
			return nil, &host.Error{Code: host.CodeSessionNotFound, Message: fmt.Sprintf("there is no session %q", id)}
		}
		_, _, err = s.cfg.Host.Create(ctx, host.Spec{ID: id, Workspace: set.cwd, Model: set.selection})
	}
	var locked *session.LockedError
	if errors.As(err, &locked) { // also by a process that is making it
		return nil, fmt.Errorf("the session %q is in use by process %d; a session has one writer", id, locked.PID)
	}
	if err != nil {
		return nil, err
	}
	c, err := s.follow(ctx, id, set, stored)
	if err != nil {
		return nil, errors.Join(err, s.cfg.Disown(id))
	}
	return c, nil
}

// follow opens a session of the store and begins to tell what happens in it.
func (s *Server) follow(ctx context.Context, id string, set *settings, stored bool) (c *conversation, err error) {
	handle, err := s.cfg.Host.Session(ctx, id)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			handle.Release()
		}
	}()
	if stored {
		// What a stopped process left open is closed before anything is told: it belongs to another client's turn.
		if _, err := s.cfg.Host.Journal().Mend(ctx, handle.Log()); err != nil {
			return nil, err
		}
		if _, err := handle.Patch(ctx, host.Patch{Model: &set.selection}); err != nil {
			return nil, err
		}
	}
	following, cut := context.WithCancel(ctx)
	c = &conversation{
		id: id, quoted: encode(id), handle: handle, log: handle.Log(), deltas: set.deltas,
		cut: cut, ending: make(chan struct{}), done: make(chan struct{}), receipts: map[string]chan struct{}{},
	}
	f := newFollower(c, s.out, s.cfg.Logger)
	s.mu.Lock()
	closing := s.closing
	if !closing {
		s.sessions[id] = c
	}
	s.mu.Unlock()
	if closing { // nobody would close it any more
		cut()
		return nil, errShuttingDown
	}
	s.tasks.Go(func() {
		defer close(c.done)
		f.run(following)
	})
	return c, nil
}

// prompt queues a message and answers before the event that says so goes out.
func (s *Server) prompt(ctx context.Context, id string, r request, set *settings) {
	c, messageID, err := s.accept(ctx, id, r, set)
	if err != nil {
		s.reply(r, nil, err)
		return
	}
	s.reply(r, map[string]string{"messageId": messageID}, nil)
	c.received(messageID)
}

func (s *Server) accept(ctx context.Context, id string, r request, set *settings) (*conversation, string, error) {
	blocks, err := r.blocks()
	if err != nil {
		return nil, "", err
	}
	c, err := s.open(ctx, id, set, true)
	if err != nil {
		return nil, "", err
	}
	content, err := keep(ctx, c.handle, blocks)
	if err != nil {
		return nil, "", err
	}
	messageID := "msg_" + uuid.Must(uuid.NewV7()).String()
	c.expect(messageID)
	if _, err := c.handle.Send(ctx, host.Message{ID: messageID, Content: content}); err != nil {
		c.received(messageID)
		return nil, "", err
	}
	return c, messageID, nil
}

func (c *conversation) expect(messageID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.receipts[messageID] = make(chan struct{})
}

func (c *conversation) received(messageID string) {
	c.mu.Lock()
	ch := c.receipts[messageID]
	delete(c.receipts, messageID)
	c.mu.Unlock()
	close(ch)
}

// receipt is closed when the message's prompt is answered; nil when it is by now, or nobody here asked.
func (c *conversation) receipt(messageID string) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch := c.receipts[messageID]; ch != nil {
		return ch
	}
	return nil
}

func (s *Server) resume(ctx context.Context, id string, set *settings) error {
	c, err := s.open(ctx, id, set, false)
	if err != nil {
		return err
	}
	return c.handle.Wake(ctx)
}

// cancel ends the session's turn and empties its queue, or with a messageId what became of that message.
func (s *Server) cancel(ctx context.Context, id string, r request) error {
	message, err := r.text("messageId", false)
	if err != nil {
		return err
	}
	c := s.find(id)
	if c == nil {
		return &host.Error{Code: host.CodeSessionNotFound, Message: fmt.Sprintf("the session %q is not open", id)}
	}
	if message != "" {
		return c.handle.CancelMessage(ctx, message)
	}
	return c.handle.Cancel(ctx, false)
}

// close ends the session's agent and lets other processes have the session. Closing what isn't open is fine.
func (s *Server) close(ctx context.Context, id string) error {
	s.mu.Lock()
	c := s.sessions[id]
	delete(s.sessions, id)
	s.mu.Unlock()
	if c == nil {
		return nil
	}
	return s.finish(ctx, c, 0, 0)
}

// finish closes the agent, waits until everything of it is told, and gives the session back. The times bound the two; 0 doesn't.
func (s *Server) finish(ctx context.Context, c *conversation, closing, telling time.Duration) error {
	within, cancel := bounded(ctx, closing)
	err := c.handle.Close(within)
	cancel()
	close(c.ending)
	within, cancel = bounded(ctx, telling)
	defer cancel()
	select {
	case <-c.done:
	case <-s.out.gone:
	case <-within.Done():
		s.out.stop() // the client doesn't read; it won't hear the rest
	}
	c.cut()
	<-c.done
	c.handle.Release()
	return errors.Join(err, s.cfg.Disown(c.id))
}

func bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}
