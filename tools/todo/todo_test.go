package todo

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/tools"
)

func TestTodo(t *testing.T) {
	tool, err := New()
	if err != nil {
		t.Fatal(err)
	}
	run := func(args string) tools.Result {
		return tool.Run(context.Background(), tools.Call{Arguments: json.RawMessage(args)})
	}
	got := run(`{"items": [{"id": "a", "content": "read", "status": "completed"}, {"content": "write", "status": "in_progress"}], "more": 1}`)
	if got.IsError || got.Text() != "The list is kept: 1 of 2 done." {
		t.Errorf("%s", got.Text())
	}
	want := []session.Payload{session.TodoWrite{Items: []session.TodoItem{{ID: "a", Content: "read", Status: "completed"}, {Content: "write", Status: "in_progress"}}}}
	if diff := cmp.Diff(want, got.Events); diff != "" {
		t.Error(diff)
	}
	if got := run(`{"items": []}`); got.IsError || len(got.Events) != 1 {
		t.Errorf("an empty list clears it: %s", got.Text())
	}
	for args, says := range map[string]string{
		`{}`:              "`items` is required",
		`{"items": null}`: "`items` is required",
		`{"items": "x"}`:  "do not fit",
		`{"items": [{"content": "x", "status": "later"}]}`:                                                                `Item 1 has the status "later"`,
		`{"items": [{"content": " ", "status": "pending"}]}`:                                                              "Item 1 has no content",
		`{"items": [{"id":"a","content":"x","status":"pending"},{"id":"a","content":"y","status":"pending"}]}`:            `Two items have the id "a"`,
		`{"items": [{"content": "` + strings.Repeat("x", maxChars+1) + `", "status": "pending"}]}`:                        "too long",
		`{"items": [` + strings.TrimSuffix(strings.Repeat(`{"content":"x","status":"pending"},`, maxItems+1), ",") + `]}`: "at most 100",
	} {
		r := run(args)
		if !r.IsError || !strings.Contains(r.Text(), says) || !strings.HasSuffix(r.Text(), "The list is unchanged.") || len(r.Events) != 0 {
			t.Errorf("%.60s: %s", args, r.Text())
		}
	}
}
