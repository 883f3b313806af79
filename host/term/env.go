package term

import (
	"maps"
	"slices"
	"strings"
)

// fixed is what every shell gets: no pager and no editor waits for a person, nothing asks, no history is read or written.
var fixed = [...]string{
	"TERM=dumb",
	"PAGER=cat", "GIT_PAGER=cat", "MANPAGER=cat", "SYSTEMD_PAGER=cat", "GH_PAGER=cat", "AWS_PAGER=cat", "DELTA_PAGER=cat", "BAT_PAGER=cat",
	"PSQL_PAGER=cat",
	"EDITOR=true", "VISUAL=true", "GIT_EDITOR=true", "GIT_SEQUENCE_EDITOR=true", "FCEDIT=true", "SUDO_EDITOR=true", "KUBE_EDITOR=true",
	"GIT_TERMINAL_PROMPT=0",
	"DEBIAN_FRONTEND=noninteractive",
	"PIP_PROGRESS_BAR=off",
	"HISTFILE=",
	"DSH_SHELL=1",
}

// removed would change how the shell starts, reads, prompts or ends.
var removed = [...]string{
	"BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PROMPT_COMMAND", "PS0", "PS1", "PS2", "PS4", "TMOUT", "CDPATH", "GLOBIGNORE",
}

// environment is what a shell starts with: the host's without secrets and without what is the host's own, then fixed, then the row's.
func environment(host []string, session, dir string, s Shell) []string {
	env := map[string]string{}
	for _, kv := range host {
		name, value, ok := strings.Cut(kv, "=")
		if ok && name != "" && (slices.Contains(s.PassEnv, name) || passes(name)) {
			env[name] = value
		}
	}
	if !utf8Locale(env) {
		env["LANG"] = "C.UTF-8"
		delete(env, "LC_ALL")
		delete(env, "LC_CTYPE")
	}
	for _, kv := range fixed {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	env["DSH_SESSION_ID"] = session
	env["PWD"] = dir
	maps.Copy(env, s.Env)
	env["PS1"], env["PS2"] = "", "" // the shell is silent before its first line, which takes them out of the environment again
	out := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}

func passes(name string) bool {
	if slices.Contains(removed[:], name) || strings.HasPrefix(name, "BASH_FUNC_") || strings.HasPrefix(name, "DSH_") {
		return false
	}
	upper := strings.ToUpper(name)
	for _, secret := range [...]string{"KEY", "TOKEN", "SECRET", "PASSWORD"} {
		if strings.Contains(upper, secret) {
			return false
		}
	}
	return name != "OLDPWD" && name != "SHLVL" && name != "_"
}

// utf8Locale says whether character classification is UTF-8, by the rule that the first of the three names that is set decides.
func utf8Locale(env map[string]string) bool {
	for _, name := range [...]string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := env[name]; v != "" {
			v = strings.ToUpper(v)
			return strings.Contains(v, "UTF-8") || strings.Contains(v, "UTF8")
		}
	}
	return false
}

// exportedNames lists the variables that the output of `export -p` declares; a value of several lines may add names that aren't any.
func exportedNames(dump string) []string {
	var out []string
	for line := range strings.Lines(dump) {
		line = strings.TrimSuffix(line, "\n")
		rest, ok := strings.CutPrefix(line, "export ")
		if !ok {
			if rest, ok = strings.CutPrefix(line, "declare -"); !ok {
				continue
			}
			_, rest, _ = strings.Cut(rest, " ")
		}
		name, _, _ := strings.Cut(rest, "=")
		out = append(out, name)
	}
	return out
}

// logical is the directory as the shell called it (through symbolic links), by its exported variables; empty when they don't say, or not simply.
func logical(dump string) string {
	for line := range strings.Lines(dump) {
		if rest, ok := strings.CutPrefix(line, `declare -x PWD="`); ok {
			if dir, ok := strings.CutSuffix(rest, "\"\n"); ok && strings.HasPrefix(dir, "/") && !strings.ContainsAny(dir, "\\\"$`\n") {
				return dir
			}
		}
	}
	return ""
}

// restoring is the command that gives a fresh shell, which started with env, the exported variables of the one before.
func restoring(env []string, dump string) string {
	kept := map[string]bool{}
	for _, name := range exportedNames(dump) {
		kept[name] = true
	}
	var b strings.Builder
	for _, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); !kept[name] && name != "PWD" && name != "PS1" && name != "PS2" {
			b.WriteString(`\builtin unset -v ` + name + "\n")
		}
	}
	b.WriteString(dump)
	return b.String()
}
