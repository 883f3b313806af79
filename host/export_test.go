package host

import "context"

// Evict runs one round of eviction, which otherwise comes with a clock.
func (h *Host) Evict(ctx context.Context) error { return h.evict(ctx) }

// SweepAttachments is what a start does beside everything else.
func (h *Host) SweepAttachments(ctx context.Context) error { return h.sweepAttachments(ctx) }
