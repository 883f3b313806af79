package fsys

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Locks
		id := fileID{ino: 1}
		release, err := l.acquire(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		other, err := l.acquire(t.Context(), fileID{ino: 2})
		if err != nil {
			t.Fatal(err)
		}
		other()

		reason := errors.New("gave up")
		ctx, cancel := context.WithCancelCause(t.Context())
		results := make(chan error, 2)
		go func() { _, err := l.acquire(ctx, id); results <- err }()
		synctest.Wait()
		cancel(reason)
		if err := <-results; !errors.Is(err, reason) {
			t.Errorf("cancelled: %v", err)
		}
		go func() {
			release, err := l.acquire(t.Context(), id)
			if err == nil {
				release()
			}
			results <- err
		}()
		synctest.Wait()
		select {
		case <-results:
			t.Error("two holders")
		default:
		}
		release()
		if err := <-results; err != nil {
			t.Error(err)
		}
		if len(l.slots) != 0 {
			t.Errorf("%d slots left", len(l.slots))
		}
	})
}
