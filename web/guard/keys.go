package guard

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Lives and bounds of what Keys hands out.
const (
	CodeLife   = 5 * time.Minute
	TicketLife = 30 * time.Second

	maxCodes   = 64
	maxTickets = 1024
	maxTokens  = 256 // browsers; the oldest goes
	maxGuesses = 20  // wrong codes at once
	guessEvery = 3 * time.Second
)

// Errors of Exchange and Revoke.
var (
	ErrCode    = errors.New("the code is wrong, used or too old")
	ErrGuesses = errors.New("too many wrong codes")
	ErrToken   = errors.New("no such token")
)

// Keys holds the authority of one data directory: the owner's token in the file token, tokens of browsers in tokens.json (as hashes), and
// in memory the login codes and tickets that are still good. Whatever is secret has 256 bits, so guessing is limited for the log's sake only.
type Keys struct {
	file  string
	owner string
	now   func() time.Time
	max   int // tokens
	// edit is held by whoever changes tokens, over the writing of the file.
	edit chan struct{}

	mu      sync.Mutex
	tokens  map[[32]byte]*token
	codes   map[[32]byte]time.Time // until when
	tickets map[[32]byte]ticket
	guesses float64
	guessed time.Time
}

type token struct {
	Token
	Hash string `json:"sha256"`
	gone chan struct{}
}

// Token is what may be told about a browser's token.
type Token struct {
	ID        string `json:"id"`
	Label     string `json:"label,omitempty" doc:"The browser that asked for it."`
	CreatedAt int64  `json:"createdAt" doc:"Epoch milliseconds."`
}

type ticket struct {
	who   Who
	until time.Time
}

// OpenKeys reads the keys of the data directory dir and makes the owner's token when there is none. now is the clock, time.Now when nil.
func OpenKeys(dir string, now func() time.Time) (*Keys, error) {
	if now == nil {
		now = time.Now
	}
	owner, err := ownerToken(filepath.Join(dir, "token"))
	if err != nil {
		return nil, err
	}
	k := &Keys{
		file: filepath.Join(dir, "tokens.json"), owner: owner, now: now, max: maxTokens, edit: make(chan struct{}, 1),
		tokens: map[[32]byte]*token{}, codes: map[[32]byte]time.Time{}, tickets: map[[32]byte]ticket{},
		guesses: maxGuesses, guessed: now(),
	}
	data, err := os.ReadFile(k.file)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read browser tokens: %w", err)
	}
	var list []*token
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("read browser tokens: %s: %w; delete the file to log every browser out", k.file, err)
	}
	for _, t := range list {
		sum, err := hex.DecodeString(t.Hash)
		if err != nil || len(sum) != 32 {
			return nil, fmt.Errorf("read browser tokens: %s: token %s has no hash; delete the file to log every browser out", k.file, t.ID)
		}
		t.gone = make(chan struct{})
		k.tokens[[32]byte(sum)] = t
	}
	return k, nil
}

// ownerToken reads the token file, or makes it. A file that others can read is tightened.
func ownerToken(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err == nil {
		value := strings.TrimSpace(string(data))
		if len(value) < 32 {
			return "", fmt.Errorf("read owner token: %s is too short; delete it and a new one is made", file)
		}
		if err := os.Chmod(file, 0o600); err != nil {
			return "", fmt.Errorf("read owner token: %w", err)
		}
		return value, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read owner token: %w", err)
	}
	value := secret()
	if err := writeFile(file, []byte(value+"\n")); err != nil {
		return "", fmt.Errorf("write owner token: %w", err)
	}
	return value, nil
}

// writeFile replaces file at once, readable by its owner only.
func writeFile(file string, data []byte) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(file), ".tmp-*") // 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	if _, err = tmp.Write(data); err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}

// Owner is the owner's token.
func (k *Keys) Owner() string { return k.owner }

// Check finds who holds this bearer token.
func (k *Keys) Check(value string) (Who, bool) {
	if value == "" {
		return Who{}, false
	}
	if subtle.ConstantTimeCompare([]byte(value), []byte(k.owner)) == 1 {
		return Who{ID: "owner"}, true
	}
	sum := sha256.Sum256([]byte(value)) // a look-up by hash tells a prober nothing about the token
	k.mu.Lock()
	defer k.mu.Unlock()
	t, ok := k.tokens[sum]
	if !ok {
		return Who{}, false
	}
	return Who{ID: t.ID, Gone: t.gone}, true
}

// NewCode makes a login code: good once, for CodeLife.
func (k *Keys) NewCode() (code string, until time.Time) {
	code, until = secret(), k.now().Add(CodeLife)
	k.mu.Lock()
	defer k.mu.Unlock()
	dropOld(k.codes, k.now(), maxCodes, func(t time.Time) time.Time { return t })
	k.codes[sha256.Sum256([]byte(code))] = until
	return code, until
}

// Exchange trades a login code for a token of the caller's own. A good code always works, however many wrong ones came before.
func (k *Keys) Exchange(code, label string) (value string, t Token, err error) {
	if err := k.spend(code); err != nil {
		return "", Token{}, err
	}
	if r := []rune(label); len(r) > 200 {
		label = string(r[:200])
	}
	value = secret()
	sum := sha256.Sum256([]byte(value))
	made := &token{
		Token: Token{ID: secret()[:12], Label: label, CreatedAt: k.now().UnixMilli()},
		Hash:  hex.EncodeToString(sum[:]), gone: make(chan struct{}),
	}
	err = k.change(func(tokens map[[32]byte]*token) {
		for len(tokens) >= k.max {
			dropOldest(tokens)
		}
		tokens[sum] = made
	})
	return value, made.Token, err
}

func (k *Keys) spend(code string) error {
	sum := sha256.Sum256([]byte(code))
	now := k.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	until, ok := k.codes[sum]
	delete(k.codes, sum)
	if ok && now.Before(until) {
		return nil
	}
	k.guesses = min(maxGuesses, k.guesses+now.Sub(k.guessed).Seconds()/guessEvery.Seconds())
	k.guessed = now
	if k.guesses < 1 {
		return ErrGuesses
	}
	k.guesses--
	return ErrCode
}

// Ticket makes a ticket that opens one websocket as who, within TicketLife.
func (k *Keys) Ticket(who Who) (value string, until time.Time) {
	value, until = secret(), k.now().Add(TicketLife)
	k.mu.Lock()
	defer k.mu.Unlock()
	dropOld(k.tickets, k.now(), maxTickets, func(t ticket) time.Time { return t.until })
	k.tickets[sha256.Sum256([]byte(value))] = ticket{who, until}
	return value, until
}

func (k *Keys) redeem(value string) (Who, bool) {
	if value == "" {
		return Who{}, false
	}
	sum := sha256.Sum256([]byte(value))
	k.mu.Lock()
	defer k.mu.Unlock()
	t, ok := k.tickets[sum]
	delete(k.tickets, sum)
	if !ok || !k.now().Before(t.until) {
		return Who{}, false
	}
	select {
	case <-t.who.Gone: // revoked in between
		return Who{}, false
	default:
		return t.who, true
	}
}

// Tokens lists the browsers' tokens, newest first.
func (k *Keys) Tokens() []Token {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := make([]Token, 0, len(k.tokens))
	for _, t := range k.tokens {
		list = append(list, t.Token)
	}
	slices.SortFunc(list, func(a, b Token) int {
		if a.CreatedAt != b.CreatedAt {
			return int(b.CreatedAt - a.CreatedAt)
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list
}

// Revoke ends a token; its sockets are told through Who.Gone.
func (k *Keys) Revoke(id string) error {
	found := false
	err := k.change(func(tokens map[[32]byte]*token) {
		for sum, t := range tokens {
			if t.ID == id {
				delete(tokens, sum)
				found = true
			}
		}
	})
	if err == nil && !found {
		return ErrToken
	}
	return err
}

// change edits a copy of the tokens, writes the file, and only then lets the copy count.
func (k *Keys) change(edit func(map[[32]byte]*token)) error {
	k.edit <- struct{}{}
	defer func() { <-k.edit }()
	k.mu.Lock()
	before := k.tokens
	after := make(map[[32]byte]*token, len(before)+1)
	for sum, t := range before {
		after[sum] = t
	}
	k.mu.Unlock()
	edit(after)
	list := make([]*token, 0, len(after))
	for _, t := range after {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b *token) int { return strings.Compare(a.ID, b.ID) })
	data, err := json.MarshalIndent(list, "", " ")
	if err != nil {
		return fmt.Errorf("write browser tokens: %w", err)
	}
	if err := writeFile(k.file, data); err != nil {
		return fmt.Errorf("write browser tokens: %w", err)
	}
	k.mu.Lock()
	k.tokens = after
	k.mu.Unlock()
	for sum, t := range before {
		if _, still := after[sum]; !still {
			close(t.gone)
		}
	}
	return nil
}

func dropOldest(tokens map[[32]byte]*token) {
	var oldest [32]byte
	first := true
	for sum, t := range tokens {
		if first || t.CreatedAt < tokens[oldest].CreatedAt {
			oldest, first = sum, false
		}
	}
	delete(tokens, oldest)
}

// dropOld makes room in m for one more: what has ended goes, and when that isn't enough, what ends first.
func dropOld[V any](m map[[32]byte]V, now time.Time, limit int, until func(V) time.Time) {
	var first [32]byte
	var firstEnd time.Time
	for sum, v := range m {
		switch end := until(v); {
		case !now.Before(end):
			delete(m, sum)
		case firstEnd.IsZero() || end.Before(firstEnd):
			first, firstEnd = sum, end
		}
	}
	if len(m) >= limit {
		delete(m, first)
	}
}

// secret makes 256 bits that can stand in a URL and in a subprotocol.
func secret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}
