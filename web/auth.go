package web

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/dsh-web/dsh-web/web/guard"
)

type exchangeOut struct {
	Body struct {
		Token string `json:"token"`
		ID    string `json:"id"`
	}
}

type ticketOut struct {
	Body struct {
		Ticket    string `json:"ticket"`
		ExpiresAt int64  `json:"expiresAt" doc:"Epoch milliseconds."`
	}
}

type codeOut struct {
	Body struct {
		Code      string `json:"code"`
		ExpiresAt int64  `json:"expiresAt" doc:"Epoch milliseconds."`
	}
}

type tokensOut struct {
	Body struct {
		Tokens []guard.Token `json:"tokens"`
	}
}

func (a *api) authRoutes() {
	s := a.server
	owner := guard.Rule{Access: guard.Owner}
	body := guard.Rule{Access: guard.Owner, Body: guard.JSON}
	register(a, route{method: "POST", path: "/auth/exchange", id: "exchange-code", tag: "auth", rule: guard.Rule{Access: guard.Open, Body: guard.JSON},
		summary: "Trade a login code for a token", errors: []int{401, 429}},
		func(_ context.Context, in *struct {
			Agent string `header:"User-Agent"`
			Body  struct {
				Code string `json:"code" maxLength:"200"`
			}
		}) (*exchangeOut, error) {
			out := &exchangeOut{}
			if s.keys == nil {
				return nil, &guard.Problem{Status: http.StatusUnauthorized, Code: codeUnauthorized, Detail: "Authority is off: no token is needed."}
			}
			token, info, err := s.keys.Exchange(in.Body.Code, in.Agent)
			switch {
			case errors.Is(err, guard.ErrGuesses):
				return nil, tooMany("login attempts")
			case errors.Is(err, guard.ErrCode):
				return nil, &guard.Problem{Status: http.StatusUnauthorized, Code: codeUnauthorized,
					Detail: "The login code is wrong, used or too old; run `dsh-web open` for a new one."}
			case err != nil:
				return nil, err
			}
			out.Body.Token, out.Body.ID = token, info.ID
			return out, nil
		})
	register(a, route{method: "POST", path: "/auth/ticket", id: "make-ticket", tag: "auth", rule: body, summary: "A ticket that opens one websocket"},
		func(ctx context.Context, _ *struct{}) (*ticketOut, error) {
			out := &ticketOut{}
			if s.keys == nil {
				out.Body.Ticket, out.Body.ExpiresAt = "authority-is-off", time.Now().Add(guard.TicketLife).UnixMilli()
				return out, nil
			}
			ticket, until := s.keys.Ticket(guard.From(ctx))
			out.Body.Ticket, out.Body.ExpiresAt = ticket, until.UnixMilli()
			return out, nil
		})
	register(a, route{method: "POST", path: "/auth/code", id: "make-code", tag: "auth", rule: body, summary: "A login code for another browser"},
		func(context.Context, *struct{}) (*codeOut, error) {
			out := &codeOut{}
			if s.keys == nil {
				return out, nil
			}
			code, until := s.keys.NewCode()
			out.Body.Code, out.Body.ExpiresAt = code, until.UnixMilli()
			return out, nil
		})
	register(a, route{method: "GET", path: "/auth/tokens", id: "list-tokens", tag: "auth", rule: owner, summary: "The browsers that are logged in"},
		func(context.Context, *struct{}) (*tokensOut, error) {
			out := &tokensOut{}
			out.Body.Tokens = []guard.Token{}
			if s.keys != nil {
				out.Body.Tokens = s.keys.Tokens()
			}
			return out, nil
		})
	register(a, route{method: "DELETE", path: "/auth/tokens/{id}", id: "revoke-token", tag: "auth", rule: owner, status: http.StatusNoContent,
		summary: "Log a browser out", errors: []int{404}},
		func(_ context.Context, in *struct {
			ID string `path:"id"`
		}) (*struct{}, error) {
			if s.keys == nil {
				return nil, refuse(codeTokenNotFound, "There is no such token.")
			}
			err := s.keys.Revoke(in.ID)
			if errors.Is(err, guard.ErrToken) {
				return nil, refuse(codeTokenNotFound, "There is no such token.")
			}
			return nil, err
		})
}
