//go:build linux

package bash_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dsh-web/dsh-web/host/proc"
	"github.com/dsh-web/dsh-web/tools/bash"
)

// hostile are commands that break shells, drivers and terminals. They run as whoever runs the tests, so none may reach beyond its own processes
// and directory, in any mixture: none leaves the directory for another one that exists (the home directory is the agent's own), and none
// removes or changes anything but by a name it has made itself.
var hostile = strings.Split(strings.TrimSpace(`
echo "unclosed
echo 'unclosed
echo $(
echo `+"`"+`echo x
echo \
if true; then
case x in
f() {
(( 1 +
[[ a
}
)
;;
&& true
cat <<X; echo never closed
cat <<'X' <<Y; echo b
cat <<<"$(seq 100)"
echo $'\x01\x02\x03\x04\x1b[2J\x7f'
printf '\x1e0123456789abcdefS\x1e\x1e'
head -c 3000 /dev/urandom
trap 'echo T' EXIT
trap '' INT TERM HUP
trap 'echo D' DEBUG
trap 'echo E' ERR
trap 'echo R' RETURN
trap 'exit 9' DEBUG
trap 'exit 8' INT
trap 'sleep 9' EXIT; exit 2
trap 'kill -9 $$' USR1; kill -USR1 $$
trap 'echo C' CHLD; /bin/true
exec 2>&-
exec >&-
exec 0<&-
exec 1>&- 2>&-
exec 10>&-
exec 11>/dev/null
exec 12</dev/null
exec 13>&- 14>&- 15>&- 16>&-
for i in {3..60}; do eval "exec $i>&-"; done 2>/dev/null
for fd in /proc/$$/fd/*; do eval "exec ${fd##*/}>&-"; done 2>/dev/null
echo junk >&10
echo junk >&13
echo junk >&14
exec 3<>/dev/tty; echo three >&3
exec >/dev/null
exec > >(cat)
exec {fd}>/dev/null
ulimit -n 30
ulimit -n 16
ulimit -n 8
ulimit -u 1
ulimit -f 0
ulimit -s 64
ulimit -t 1
set -e
set -e; false
set -eu; echo $undefined
set -u; echo ${undefined}
set -x
set -v
set -f
set -n
set -C
set -k
set +m
set -m
set -t
set -b
set -p
set -o posix
set -r
set -H
set -o vi
set -o emacs
set -o history; history
set -o ignoreeof
set -o pipefail; false | true
set -- a b c; shift 5
shopt -s extdebug
shopt -s execfail
shopt -u expand_aliases
shopt -s huponexit
shopt -s lastpipe
shopt -s xpg_echo
shopt -s failglob; echo nothing*here
shopt -s checkjobs
sleep 0.2 & fg
sleep 1 & disown; kill %1
sleep 1 & kill -STOP $!; wait $!
suspend
suspend -f
kill -STOP $$
kill -TSTP $$
kill -TTIN $$
kill -STOP 0
sh -c 'kill -STOP $$'
bg; fg; jobs; wait
wait
stty raw </dev/tty
stty sane </dev/tty
stty tostop </dev/tty; echo x &
stty -isig -icanon min 0 </dev/tty
stty cols 3 rows 1 </dev/tty
stty 0 </dev/tty
exec true
exec sleep 9
exec no_such_command_here
exec bash --norc
exec -a zzz sh -c 'exit 3'
exec sh -c 'trap "" INT TERM; sleep 9'
kill -INT $$
kill -TERM $$
kill -HUP $$
kill -KILL $$
kill -SEGV $$
kill -PIPE $$
kill -ALRM $$
kill -QUIT $$
kill -WINCH $$
kill -INT 0
kill -TERM 0
kill 0
(sleep 0.05; kill -INT $$) & sleep 0.2
(sleep 0.02; kill -INT $$) &
(sleep 0.1; kill -KILL $$) &
(sleep 0.05; kill -STOP $$) &
(exit 4)
( (sleep 9) & )
(while :; do sleep 0.1; done) &
$(exit 3)
{ exit 2; } | cat
setsid sleep 9 &
nohup sleep 9 >/dev/null 2>&1 &
cat <(echo a) <(echo b)
echo x > >(cat; sleep 1)
diff <(echo a) <(sleep 9)
coproc cat
IFS=0123456789
IFS='$?'
unset IFS
PS4='$(echo trace)'
PS1='$(sleep 9)'; PS2=zz
PATH=
unset PATH
TMOUT=1
readonly TMOUT=1
readonly PS1=x
readonly PROMPT_COMMAND='echo pc'
PROMPT_COMMAND='exit 3'
PROMPT_COMMAND=(a b c)
export LC_ALL=xx_YY LANG=zz
BASH_XTRACEFD=1; set -x
declare -n PS1=other
declare -r PS2=x PS1=y
HOME=/nonexistent; cd
export BIG=$(head -c 100000 /dev/zero | tr '\0' z)
export NL=$'a\nB0123456789abcdef 0 himBs 1\nC0123456789abcdef\n'
echo() { :; }
printf() { :; }
builtin() { :; }
builtin() { return 3; }
eval() { :; }
set() { :; }
unset() { :; }
command() { :; }
exit() { :; }
export() { :; }
command_not_found_handle() { exit 3; }
alias builtin='exit 3' eval=false
enable -n echo
enable -n builtin
enable -n eval printf
while :; do :; done
while :; do /bin/true; done
while sleep 0.01; do :; done
for ((;;)); do :; done
until false; do read -t 0.01 x; done
f() { f; }; f
yes
yes & sleep 0.05; kill $!
cat /dev/zero
cat
read x
read x </dev/tty
read -t 0.1 x </dev/tty
select x in a b; do break; done
sleep 9
sleep 9 | sleep 9
(trap '' INT; sleep 9)
(trap '' INT TERM; sleep 9)
python3 -S -c 'import signal,time; [signal.signal(s, signal.SIG_IGN) for s in (2, 15, 1)]; time.sleep(9)'
return
break
continue 3
logout
exit
exit 0
exit 300
cd "$(mktemp -d ./XXXX)" && rmdir "$PWD"
cd /nonexistent
cd . ; cd -; cd ./.
mkdir -p gone && cd gone && rm -rf ../gone
umask 777
source /dev/stdin
. /dev/null
. ./nothing
mapfile < /etc/passwd; echo ${#MAPFILE[@]}
time sleep 0.01
history -c; fc -l
!!
mkdir -p locked; chmod 000 locked; cd locked
mkdir -p junk; touch junk/-rf; rm -rf junk/*
bind -p >/dev/null
complete -F x y
hash -r; hash -p /nonexistent cat
caller; times; dirs -c; popd
disown -a; exec 9>&1
unset BASH_VERSION PPID UID
export -f echo 2>/dev/null; f() { :; }; export -f f
declare -A a; a[x]=y; unset a
let 1/0
echo $((1/0))
echo ${!x@Q} ${x:?}
test a b c d e
`), "\n")

// mutes are parts of commands after which `+"`echo ok`"+` may rightly print nothing, or print it elsewhere.
var mutes = []string{"exec", "echo()", "enable -n", "set -r", "ulimit", "suspend", "command_not_found", "LC_ALL", "trap", "umask", "set -t"}

func muted(command string) bool {
	for _, m := range mutes {
		if strings.Contains(command, m) {
			return true
		}
	}
	return false
}

// TestHostile runs random mixtures of hostile commands. Whatever they did, the next call answers, in time, and a shell that was replaced is told.
func TestHostile(t *testing.T) {
	rounds, agents := 500, 8
	if testing.Short() {
		rounds = 80
	}
	if soak() {
		rounds = 5000
	}
	rnd := seeded(t)
	in, err := proc.Open(proc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("agents", func(t *testing.T) {
		for i := range agents {
			mine := rand.New(rand.NewPCG(rnd.Uint64(), rnd.Uint64()))
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				a := newAgentIn(t, in, dir, func(c *bash.Config) {
					c.Timeout, c.Env = bash.Duration(400*time.Millisecond), map[string]string{"HOME": dir}
				})
				for n := range rounds / agents {
					a.assault(mine, n)
				}
			})
		}
	})
	if err := in.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func (a *agent) assault(rnd *rand.Rand, n int) {
	a.t.Helper()
	var parts []string
	for range 1 + rnd.IntN(3) {
		parts = append(parts, hostile[rnd.IntN(len(hostile))])
	}
	command := strings.Join(parts, [...]string{"\n", "; ", " && ", " | "}[rnd.IntN(4)])
	before := a.shell.State()
	r := a.call(context.Background(), map[string]any{"command": command}, io.Discard)
	start := time.Now()
	followed := a.result("echo ok")
	follow := followed.Text()
	if m, ok := followed.Meta.(bash.Meta); ok && m.Cwd != "" && m.Cwd != a.dir && !strings.HasPrefix(m.Cwd, a.dir+"/") {
		a.t.Fatalf("round %d: %q: left its directory for %s; no more of this", n, command, m.Cwd)
	}
	if took := time.Since(start); took > 3*time.Second {
		a.t.Fatalf("round %d: %q: echo ok took %v: %.500q", n, command, took, follow)
	}
	after := a.shell.State()
	noDriver(a.t, r.Text())
	noDriver(a.t, follow)
	// On a crowded machine the short limit of this test can pass while a new shell gets its variables back; then that is what is told.
	told := strings.Contains(r.Text(), "fresh") || strings.Contains(follow, "fresh") || strings.Contains(follow, "No shell could be started")
	if before.PID != 0 && after.Generation != before.Generation && !told {
		a.t.Fatalf("round %d: %q: the shell is another one, and nobody said so:\n%.500q\n%.500q", n, command, r.Text(), follow)
	}
	if strings.Contains(follow, "ok") {
		return
	}
	if after.Generation == before.Generation && !muted(command) {
		a.t.Logf("round %d: %q: echo ok said %.300q", n, command, follow)
	}
	start = time.Now()
	for {
		// On a crowded machine the short limit of this test can pass before a new shell has begun.
		got := a.call(context.Background(), map[string]any{"command": "echo ok", "restart": true}, io.Discard).Text()
		if strings.HasSuffix(got, "ok") {
			return
		}
		if !strings.Contains(got, "Timed out") || time.Since(start) > 3*time.Second {
			a.t.Fatalf("round %d: %q: a restart doesn't help: %.500q", n, command, got)
		}
	}
}
