package model_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host/model"
)

func TestRetryDelay(t *testing.T) {
	server := &model.Error{Code: model.CodeServer}
	for n, want := range map[int]time.Duration{1: 500 * time.Millisecond, 2: time.Second, 3: 2 * time.Second, 4: 4 * time.Second, 5: 8 * time.Second} {
		if d, ok := model.RetryDelay(fmt.Errorf("wrapped: %w", server), n, 0.5); d != want || !ok {
			t.Errorf("retry %d: %v, %v", n, d, ok)
		}
		low, _ := model.RetryDelay(server, n, 0)
		high, _ := model.RetryDelay(server, n, 0.999999)
		if low != want-want/10 || high <= want || high > want+want/10 {
			t.Errorf("retry %d: between %v and %v", n, low, high)
		}
	}
	for _, n := range []int{0, 6, 100} {
		if _, ok := model.RetryDelay(server, n, 0.5); ok {
			t.Errorf("retry %d is allowed", n)
		}
	}
	for after, want := range map[time.Duration]bool{time.Second: true, time.Minute: true, time.Minute + 1: false, time.Hour: false} {
		d, ok := model.RetryDelay(&model.Error{Code: model.CodeRateLimit, RetryAfter: after}, 1, 0.1)
		if ok != want || ok && d != after {
			t.Errorf("Retry-After %v: %v, %v", after, d, ok)
		}
	}
	if _, ok := model.RetryDelay(errors.New("of nobody"), 1, 0.5); ok {
		t.Error("a foreign error is retried")
	}
	retried := map[model.Code]bool{
		model.CodeEmptyResponse: true, model.CodeRateLimit: true, model.CodeServer: true, model.CodeTimeout: true, model.CodeTransport: true,
		model.CodeStreamClosed: true, model.CodeMalformedResponse: true,
	}
	for _, c := range []model.Code{
		model.CodeAuth, model.CodeQuota, model.CodeRateLimit, model.CodeInvalidRequest, model.CodeContextWindow, model.CodeServer, model.CodeTimeout, model.CodeTransport,
		model.CodeEmptyResponse, model.CodeMalformedResponse, model.CodeStreamClosed, model.CodeContentFilter, model.CodeMissingCredential, model.CodeInvalidCredential, model.CodeAborted,
	} {
		if _, ok := model.RetryDelay(&model.Error{Code: c}, 1, 0.5); ok != retried[c] {
			t.Errorf("%s: retried %v", c, ok)
		}
	}
}
