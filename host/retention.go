package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dsh-web/dsh-web/host/session"
)

// Retention says how long sessions are kept that nobody touches. Zero durations keep them for ever.
type Retention struct {
	// Archive is when an untouched session is archived.
	Archive time.Duration
	// Delete is when an untouched archived session is deleted, with its files.
	Delete time.Duration
}

// retentionEvery is the pause between two looks.
const retentionEvery = time.Hour

// retain applies the retention at the start and then once an hour.
func (h *Host) retain(ctx context.Context) error {
	tick := time.NewTicker(retentionEvery)
	defer tick.Stop()
	for {
		if err := h.applyRetention(ctx); err != nil && ctx.Err() == nil {
			h.cfg.Logger.Error("apply retention", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// applyRetention archives and deletes what is due. A session that runs, or waits for somebody, is touched by that.
func (h *Host) applyRetention(ctx context.Context) error {
	now := h.cfg.Now()
	due := func(in session.Info, limit time.Duration) bool {
		return limit > 0 && in.Status() == session.StatusIdle && in.Queue == 0 && in.Pending == 0 && now.Sub(time.UnixMilli(in.UpdatedAt)) >= limit
	}
	var errs []error
	for q := (session.Query{Limit: 1000}); ; {
		page, err := h.journal.List(ctx, q)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		for _, in := range page.Sessions {
			switch {
			case in.Archived && due(in, h.cfg.Retention.Delete):
				err = h.Delete(ctx, in.ID, false)
			case !in.Archived && due(in, h.cfg.Retention.Archive):
				err = h.archiveOne(ctx, in.ID)
			default:
				continue
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("session %s: %w", in.ID, err))
			}
		}
		if page.NextCursor == "" {
			return errors.Join(errs...)
		}
		q.Cursor = page.NextCursor
	}
}

func (h *Host) archiveOne(ctx context.Context, id string) error {
	e, leave, err := h.locked(ctx, id)
	if err != nil {
		return err
	}
	defer leave()
	return h.archive(ctx, e, true)
}
