package approval

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestCommands(t *testing.T) {
	for text, want := range map[string]string{
		"git status":                              "git|status",
		"  git   status  ":                        "git|status",
		"git commit -m 'see #12'":                 "git|commit|-m|see #12",
		`git "status" 'a b' c"d"'e'`:              "git|status|a b|cde",
		"git status && ls; cat a | head -n 3":     "git|status / ls / cat|a / head|-n|3",
		"git status ||\nls":                       "git|status / ls",
		"go test ./... 2>&1 >/dev/null":           "go|test|./...",
		"grep -n 'a.*[b]$' file":                  "grep|-n|a.*[b]$|file",
		"grep --color=never x 2> /dev/null | wc":  "grep|--color=never|x / wc",
		"make test":                               "make|test",
		"npm --prefix web run check":              "npm|--prefix|web|run|check",
		"echo \"it's\"":                           "echo|it's",
		"git log --oneline -n 5 -- host/approval": "git|log|--oneline|-n|5|--|host/approval",
	} {
		commands, never := Commands(text)
		var got []string
		for _, c := range commands {
			got = append(got, strings.Join(c, "|"))
		}
		if s := strings.Join(got, " / "); s != want || never != "" {
			t.Errorf("%q: %q, %q; want %q", text, s, never, want)
		}
	}
}

// never lists texts that no grant may cover, with a word of the reason.
var never = map[string]string{
	"":                             "no command",
	"# nothing":                    "comment",
	"git status # quietly":         "comment",
	"# quietly\ngit status":        "comment",
	"git status\n# quietly":        "comment",
	"git status; # quietly\nls":    "comment",
	"git status && # quietly\nls":  "comment",
	"git status | # quietly\nls":   "comment",
	"ls a#b":                       "comment",
	"echo # \\\nrm -r victim":      "ends in a backslash",
	"echo # \\\\\nrm -r victim":    "ends in a backslash",
	"git \\\nstatus":               "ends in a backslash",
	"git 'a\\\nb'":                 "ends in a backslash",
	"git status \\":                "only known",
	"in a":                         "word of the shell",
	">/dev/null time ls":           "", // whatever the reason
	"'time' ls":                    "word of the shell",
	"git status &":                 "background",
	"! git status":                 "negates",
	"git status > x":               "redirects",
	"git status >> x":              "redirects",
	"cat < /etc/passwd":            "redirects",
	"cat <<EOF\nx\nEOF":            "redirects",
	"cat <<< x":                    "redirects",
	"echo x >&3":                   "redirects",
	"echo x >/dev/tcp/h/80":        "redirects",
	"> x":                          "redirects",
	"git status |& sh":             "syntax",
	"(git status)":                 "syntax",
	"{ git status; }":              "syntax",
	"if true; then ls; fi":         "syntax",
	"for x in a; do ls; done":      "syntax",
	"while true; do ls; done":      "syntax",
	"case a in a) ls;; esac":       "syntax",
	"[[ a == b ]]":                 "syntax",
	"(( x = 1 ))":                  "syntax",
	"time ls":                      "syntax",
	"coproc ls":                    "", // whatever the reason
	"git() { rm -rf x; }":          "function",
	"function git { rm; }":         "function",
	"FOO=1 git status":             "variable FOO",
	"PATH=/tmp/x":                  "variable PATH",
	"X=1 Y=2":                      "variable X",
	"git $X":                       "only known",
	"git ${X}":                     "only known",
	"git `x`":                      "only known",
	"git $(x)":                     "only known",
	"git \"$X\"":                   "only known",
	"git \"$(x)\"":                 "only known",
	"git $((1+1))":                 "only known",
	"git $'status'":                "only known",
	"git $\"status\"":              "only known",
	"git <(x)":                     "only known",
	"$X":                           "only known",
	"ls *":                         "only known",
	"ls a?":                        "only known",
	"ls [ab]":                      "only known",
	"ls {a,b}":                     "only known",
	"ls ~":                         "only known",
	"ls ~/x":                       "only known",
	"ls \\*":                       "only known",
	"gi\\t status":                 "only known",
	"ls @(a|b)":                    "only known",
	"echo !!":                      "only known",
	"^a^b":                         "only known",
	`bash -c "$X"`:                 "only known",
	"bash -c 'rm -rf x'":           "bash runs other",
	"git status | sh":              "sh runs other",
	"python3 x.py":                 "python3 runs other",
	"python3.12 x.py":              "runs other",
	"PYTHON x.py":                  "runs other",
	"node x.js":                    "runs other",
	"perl -e 1":                    "runs other",
	"awk 1":                        "runs other",
	"env FOO=1 curl":               "env runs other",
	"xargs rm":                     "runs other",
	"sudo ls":                      "runs other",
	"find . -delete":               "runs other",
	"timeout 5 ls":                 "runs other",
	"'' x":                         "without a name",
	"./build.sh":                   "a file that may change",
	"/bin/ls":                      "a file that may change",
	"curl example.com":             "network",
	"nc.openbsd -l 1":              "network",
	"wget x":                       "network",
	"ssh h":                        "network",
	"git push":                     "network",
	"git clone x":                  "network",
	"git -c core.pager=x log":      "changes what git runs",
	"git config alias.status '!x'": "runs other",
	"pip install x":                "installs",
	"npx x":                        "installs",
	"alias git=rm":                 "later commands",
	"eval ls":                      "later commands",
	"source x":                     "later commands",
	". x":                          "later commands",
	"exec ls":                      "later commands",
	"trap ls EXIT":                 "later commands",
	"export PATH=/tmp":             "later commands",
	"export -n X":                  "later commands",
	"declare -x X=1":               "later commands",
	"local X":                      "later commands",
	"set -e":                       "later commands",
	"shopt -s expand_aliases":      "later commands",
	"enable -n test":               "later commands",
	"hash -p /tmp/x git":           "later commands",
	"cd /tmp":                      "later commands",
	"cd sub && git status":         "later commands",
	"command ls":                   "later commands",
	"builtin cd x":                 "later commands",
	"read x":                       "later commands",
	"unset PATH":                   "later commands",
	"printf -v PATH x":             "works on a variable",
	"printf -vPATH x":              "works on a variable",
	"test -v 'a[$(id)]'":           "works on a variable",
	"%1":                           "goes on with a job",
	"fg":                           "later commands",
	"git\u00a0status":              "can't be seen",
	"git \u202estatus":             "can't be seen",
	"git status && (":              "complete",
	"git status 'x":                "complete",
	"git status\r\nls":             "can't be seen",
	"git \x00status":               "can't be seen",
	"git \x1b[31mstatus":           "can't be seen",
	"git \xffstatus":               "can't be seen",
}

func TestNever(t *testing.T) {
	for text, want := range never {
		commands, why := Commands(text)
		if why == "" || !strings.Contains(why, want) || commands != nil {
			t.Errorf("%q: %q, %q; want %q", text, commands, why, want)
		}
	}
	if _, why := Commands("echo " + strings.Repeat("x", maxShellText)); why == "" {
		t.Error("a long text is looked into")
	}
}

func TestArgumentsOfTheShell(t *testing.T) {
	for arguments, ok := range map[string]bool{
		`{"command":"git status"}`:                        true,
		`{"command":"git status","restart":true}`:         false,
		`{"command":"git status","Command":"rm -rf x"}`:   false,
		`{"command":"rm -rf x","command":"git status"}`:   true, // the last one is what runs; the pipeline lets none through
		`{"Command":"git status"}`:                        false,
		`{"command":["git","status"]}`:                    false,
		`{"command":null}`:                                false,
		`{}`:                                              false,
		`[]`:                                              false,
		`{"command":"git status"} {"command":"rm -rf x"}`: false,
	} {
		if g := grantableOf(Shell, arguments); (g.never == "") != ok {
			t.Errorf("%s: %q", arguments, g.never)
		}
	}
}

// FuzzCommands holds that what may be remembered is plain: joined from its words, quoted, it splits into the same words again.
func FuzzCommands(f *testing.F) {
	for text := range never {
		f.Add(text)
	}
	f.Add("git status && ls; cat 'a b' | head -n \"3\" 2>&1")
	f.Fuzz(func(t *testing.T, text string) {
		commands, why := Commands(text)
		if why != "" {
			return
		}
		var all []string
		for _, c := range commands {
			var words []string
			for _, w := range c {
				words = append(words, "'"+strings.ReplaceAll(w, "'", `'"'"'`)+"'")
			}
			all = append(all, strings.Join(words, " "))
		}
		again, why := Commands(strings.Join(all, "; "))
		a, _ := json.Marshal(commands)
		b, _ := json.Marshal(again)
		if why != "" || string(a) != string(b) {
			t.Errorf("%q: %s, then %s %q", text, a, b, why)
		}
	})
}
