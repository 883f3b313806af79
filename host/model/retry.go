package model

import (
	"errors"
	"time"
)

// Limits of retrying one model call.
const (
	MaxRetries    = 5
	retryFirst    = 500 * time.Millisecond
	retryMost     = 10 * time.Second
	retryAfterMax = 60 * time.Second
)

// RetryDelay says how long to wait before retry number n (from 1) of a call that failed with err, and whether to retry at all. Without a
// server's wish it doubles from 500 ms to 10 s, spread by ±10 %; roll is a random number in [0, 1). A server's Retry-After up to 60 s
// is honoured exactly; above it the call fails now, and the error carries the delay.
func RetryDelay(err error, n int, roll float64) (delay time.Duration, ok bool) {
	var e *Error
	if !errors.As(err, &e) || !e.Retryable() || n < 1 || n > MaxRetries {
		return 0, false
	}
	if e.RetryAfter > retryAfterMax {
		return 0, false
	}
	if e.RetryAfter > 0 {
		return e.RetryAfter, true
	}
	delay = retryMost
	if n < 6 {
		delay = min(retryFirst<<(n-1), retryMost)
	}
	return delay + time.Duration((roll*2-1)*0.1*float64(delay)), true
}
