package script

import (
	_ "embed" // what the demo says
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dsh-web/dsh-web/host/model"
)

//go:embed demo.md
var demoText string

// says returns one section of demo.md.
func says(name string) string {
	_, rest, found := strings.Cut("\n"+demoText, "\n# "+name+"\n")
	if !found {
		return name
	}
	section, _, _ := strings.Cut(rest, "\n# ")
	return strings.TrimSpace(section)
}

const (
	demoFile  = "dsh-demo.md"
	slowPause = 20 * time.Millisecond // between the pieces of "slow", whatever Options say: it is there to be watched and cancelled
	maxSlow   = 100_000
)

// Demo answers as the keyless demo does. A message of instructions (run:, write, view, say:, think:, slow:, ask:, restart; one a line) is carried out line
// by line; any other message gets a tour: look around with the shell, write or view a file with the editor, sum up. It only uses tools that
// the request offers. What it does depends on the history alone, so sessions share nothing and a resumed one goes on where it was.
func Demo(o Options) Source {
	return func(r model.Request) (Turn, error) {
		text, after, again := lastUser(r.Messages)
		t := tour{options: o, kit: kitOf(r.Tools), results: results(r.Messages[after:]), workspace: workspace(r)}
		if plan := instructions(text); plan != nil {
			return t.follow(plan, asked(r.Messages[after:])), nil
		}
		return t.show(asked(r.Messages[after:]), again), nil
	}
}

// lastUser finds the last message of a person, where it is, and whether there was one before it.
func lastUser(messages []model.Message) (text string, at int, again bool) {
	found := false
	for i, m := range messages {
		if m.Role == model.RoleUser && (m.Source.Kind == model.SourceUser || m.Source.Kind == "") {
			again = found
			text, at, found = m.Text(), i, true
		}
	}
	return text, at, again
}

// asked counts the answers given so far.
func asked(messages []model.Message) int {
	n := 0
	for _, m := range messages {
		if m.Role == model.RoleAssistant {
			n++
		}
	}
	return n
}

// workspace finds the directory that the system text or a message of the host names as the workspace, "" when none does.
func workspace(r model.Request) string {
	texts := []string{r.System}
	for _, m := range r.Messages {
		if m.Source.Kind == model.SourceHost {
			texts = append(texts, m.Text())
		}
	}
	named := regexp.MustCompile(`(?i)(?:workspace|directory)[^/\n]{0,40}(/[^\s"'` + "`" + `,;]+)`)
	for _, text := range slices.Backward(texts) {
		if m := named.FindStringSubmatch(text); m != nil {
			return strings.TrimRight(m[1], ".")
		}
	}
	return ""
}

type result struct {
	text   string
	failed bool
}

func results(messages []model.Message) []result {
	var out []result
	for _, m := range messages {
		for _, b := range m.Content {
			if b.Type == model.BlockToolResult {
				out = append(out, result{text: model.JoinText(b.Content), failed: b.IsError})
			}
		}
	}
	return out
}

// instruction is one line of a plan.
type instruction struct {
	verb string
	path string
	text string
}

// instructions reads a plan, or nil when text isn't one: every line that isn't empty must be an instruction.
func instructions(text string) []instruction {
	form := regexp.MustCompile(`^\s*(?:(run|say|think|slow|ask):\s?(.*)|write\s+(\S+?):\s?(.*)|view\s+(\S+)|(restart))\s*$`)
	var plan []instruction
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" {
			continue
		}
		m := form.FindStringSubmatch(line)
		switch {
		case m == nil:
			return nil
		case m[1] != "":
			plan = append(plan, instruction{verb: m[1], text: m[2]})
		case m[3] != "":
			plan = append(plan, instruction{verb: "write", path: m[3], text: m[4]})
		case m[5] != "":
			plan = append(plan, instruction{verb: "view", path: m[5]})
		default:
			plan = append(plan, instruction{verb: "restart"})
		}
	}
	return plan
}

// tour makes turns for one request.
type tour struct {
	options   Options
	kit       kit
	results   []result
	workspace string
}

// speak streams text word by word.
func (t tour) speak(text string) []Step {
	var out []Step
	for i, word := range strings.SplitAfter(text, " ") {
		if i > 0 && t.options.Pause > 0 {
			out = append(out, Pause(t.options.Pause))
		}
		out = append(out, Text(word))
	}
	return out
}

func (t tour) think(text string) []Step {
	var out []Step
	for i, word := range strings.SplitAfter(text, " ") {
		if i > 0 && t.options.Pause > 0 {
			out = append(out, Pause(t.options.Pause))
		}
		out = append(out, Reasoning(word))
	}
	return out
}

// follow gives the turn number n of a plan: everything up to and with its next tool call, or the end.
func (t tour) follow(plan []instruction, n int) Turn {
	var turn Turn
	spoke := false
	for _, in := range plan {
		var call *Step
		switch in.verb {
		case "run":
			call = t.kit.run(in.text)
		case "restart":
			call = t.kit.restart()
		case "ask":
			call = t.kit.ask(in.text)
		case "write":
			call = t.kit.write(in.path, in.text)
		case "view":
			call = t.kit.view(in.path)
		}
		switch {
		case call != nil && n > 0: // an earlier turn did this
			n--
			turn, spoke = nil, false
		case call != nil:
			return append(turn, *call)
		case n > 0: // said before an earlier call
		case in.verb == "say":
			turn, spoke = append(turn, t.speak(in.text)...), true
		case in.verb == "think":
			turn = append(turn, t.think(in.text)...)
		case in.verb == "slow":
			turn, spoke = append(turn, slow(in.text)...), true
		case in.verb == "run", in.verb == "restart":
			turn, spoke = append(turn, t.speak(says("noshell"))...), true
		case in.verb == "ask":
			turn, spoke = append(turn, t.speak(says("noask"))...), true
		default:
			turn, spoke = append(turn, t.speak(says("noeditor"))...), true
		}
	}
	if !spoke {
		last := "finished"
		if k := len(t.results); k > 0 && t.results[k-1].failed {
			last = "failed"
		}
		turn = append(turn, t.speak(says(last))...)
	}
	return turn
}

// slow streams n short pieces with pauses.
func slow(text string) []Step {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 1 {
		n = 1
	}
	var out []Step
	for i := range min(n, maxSlow) {
		out = append(out, Text(strconv.Itoa(i+1)+" "), Pause(slowPause))
	}
	return out
}

// show gives the turn number n of the tour.
func (t tour) show(n int, again bool) Turn {
	type stop struct {
		text string
		call *Step
	}
	opening := says("look")
	if again {
		opening = says("again")
	}
	var stops []stop
	look := t.kit.look()
	if look != nil {
		stops = append(stops, stop{opening, look})
		opening = ""
	}
	if dir, listing := t.seen(look != nil); dir != "" {
		file := path.Join(dir, demoFile)
		text, call := says("create"), t.kit.write(file, says("file")+"\n")
		if strings.Contains(listing, demoFile) {
			text, call = says("view"), t.kit.view(file)
		}
		if opening != "" {
			text, opening = opening+" "+text, ""
		}
		if call != nil {
			stops = append(stops, stop{text, call})
		}
	}
	if n < len(stops) {
		return append(Turn(t.speak(stops[n].text)), *stops[n].call)
	}
	text := says("summary")
	if len(stops) == 0 {
		text = strings.Join([]string{says("look"), says("notools"), text}, "\n\n")
	}
	return t.speak(text)
}

// seen gives the directory to write in and what is there, as far as this round's first look showed it.
func (t tour) seen(looked bool) (dir, listing string) {
	if looked && (len(t.results) == 0 || t.results[0].failed) {
		return "", ""
	}
	dir = t.workspace
	if looked {
		listing = t.results[0].text
	}
	if t.kit.shell != "" {
		dir, listing, _ = strings.Cut(listing, "\n")
		dir = strings.TrimSpace(dir)
	}
	if !path.IsAbs(dir) {
		return "", ""
	}
	return dir, listing
}

// kit is what the offered tools can do, read off their names and schemas.
type kit struct {
	shell, restarts string // names of tools
	editor          string // one with commands: create, view
	asker           string // asks the user
	writer, reader  offered
	finder          offered // lists files by a pattern
}

type offered struct{ name, path, text string }

// kitOf looks for a shell, and for an editor or a pair of file tools.
func kitOf(tools []model.Tool) kit {
	var k kit
	for _, tool := range tools {
		var schema struct {
			Properties map[string]json.RawMessage `json:"properties"`
		}
		if json.Unmarshal(tool.Parameters, &schema) != nil {
			continue
		}
		has := func(names ...string) string {
			for _, n := range names {
				if _, ok := schema.Properties[n]; ok {
					return n
				}
			}
			return ""
		}
		where := has("path", "file_path", "filePath")
		text := has("content", "text", "file_text")
		named := func(parts ...string) bool {
			return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(strings.ToLower(tool.Name), p) })
		}
		switch {
		case has("question") != "":
			k.asker = tool.Name
		case where != "" && has("command") != "" && has("file_text") != "":
			k.editor = tool.Name
		case where == "" && has("command") != "" && k.shell == "":
			k.shell = tool.Name
			if has("restart") != "" {
				k.restarts = tool.Name
			}
		case where != "" && text != "" && named("write", "create"):
			k.writer = offered{tool.Name, where, text}
		case where != "" && named("read", "view"):
			k.reader = offered{tool.Name, where, ""}
		case has("files", "pattern", "glob") != "" && named("find", "glob", "list"):
			k.finder = offered{tool.Name, where, has("files", "pattern", "glob")}
		}
	}
	return k
}

// look is a call that shows what is in the workspace.
func (k kit) look() *Step {
	if k.shell != "" {
		return k.run("pwd && ls -a | head -n 30")
	}
	return makeCall(k.finder.name, map[string]any{k.finder.text: "*.md"})
}

func (k kit) run(command string) *Step {
	return makeCall(k.shell, map[string]any{"command": command})
}

func (k kit) restart() *Step { return makeCall(k.restarts, map[string]any{"restart": true}) }

// ask is a question and, after bars, its options.
func (k kit) ask(text string) *Step {
	parts := strings.Split(text, "|")
	args := map[string]any{"question": strings.TrimSpace(parts[0])}
	if len(parts) > 1 {
		var options []string
		for _, o := range parts[1:] {
			options = append(options, strings.TrimSpace(o))
		}
		args["options"] = options
	}
	return makeCall(k.asker, args)
}

func (k kit) write(path, text string) *Step {
	if k.editor != "" {
		return makeCall(k.editor, map[string]any{"command": "create", "path": path, "file_text": text})
	}
	return makeCall(k.writer.name, map[string]any{k.writer.path: path, k.writer.text: text})
}

func (k kit) view(path string) *Step {
	if k.editor != "" {
		return makeCall(k.editor, map[string]any{"command": "view", "path": path})
	}
	return makeCall(k.reader.name, map[string]any{k.reader.path: path})
}

func makeCall(tool string, args map[string]any) *Step {
	if tool == "" {
		return nil
	}
	s := CallJSON("", tool, args)
	return &s
}
