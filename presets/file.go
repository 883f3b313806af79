package presets

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Version is the preset format that this program writes. Older ones are migrated when they are read.
const Version = 1

const (
	maxFile  = 1 << 20 // bytes of one preset.yml
	maxDepth = 16      // of rows in rows
)

// document is one preset file, checked for its shape, not yet for its rows' settings.
type document struct {
	file        string
	Version     value    `yaml:"version"`
	Name        string   `yaml:"name"`
	Description string   `yaml:"description"`
	Order       int      `yaml:"order"`
	Extends     value    `yaml:"extends"`
	Remove      []value  `yaml:"remove"`
	Rows        []rowDoc `yaml:"rows"`
	warnings    []string
}

// rowDoc is one row as it is written: a group if it has rows, else a use with settings.
type rowDoc struct {
	ID      value    `yaml:"id"`
	Use     value    `yaml:"use"`
	OS      []value  `yaml:"os"`
	Isolate []value  `yaml:"isolate"`
	With    value    `yaml:"with"`
	Rows    []rowDoc `yaml:"rows"`

	at value // the whole row
}

func (d *rowDoc) standsAt(v value) { d.at = v }

func (v value) given() bool { return v.Node != nil }

// text reads a value that must be text.
func (v value) text() (string, error) {
	if err := v.want("!!str", "text"); err != nil {
		return "", err
	}
	return v.Value, nil
}

// parse reads one preset file. Every error is a *Problem.
func parse(file string, data []byte) (*document, error) {
	at := func(line, column int, format string, args ...any) error {
		return &Problem{File: file, Line: line, Column: column, Text: fmt.Sprintf(format, args...)}
	}
	if len(data) > maxFile {
		return nil, at(1, 1, "the file is too large: more than %d KiB", maxFile>>10)
	}
	if line, column, ok := unreadable(data); ok {
		return nil, at(line, column, "this is no text: a control character, or bytes that are not UTF-8")
	}
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	var root yaml.Node
	err := dec.Decode(&root)
	if err != nil && len(strings.TrimSpace(string(data))) > 0 && !onlyComments(data) {
		line, text := yamlError(err)
		return nil, at(line, firstColumn(data, line), "%s", text)
	}
	if err != nil || len(root.Content) == 0 || root.Content[0].Tag == "!!null" {
		return nil, at(1, 1, "the file is empty; the least it needs is version: %d", Version)
	}
	var second yaml.Node
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, at(max(second.Line, 1), max(second.Column, 1), "a second document begins here; a preset is one document")
	}
	top := value{root.Content[0], file}
	if err := plain(top, 0); err != nil {
		return nil, err
	}
	return read(top)
}

// read makes a document of parsed YAML, bringing an older version up to date first.
func read(top value) (*document, error) {
	doc := &document{file: top.file}
	entries, err := top.entries()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(entries, func(e entry) bool { return e.key == "version" })
	if i < 0 {
		return nil, top.problem("the version is missing; write version: %d", Version)
	}
	version := entries[i].value
	if err := version.want("!!int", "a whole number"); err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(version.Value)
	switch {
	case err != nil || n < 0:
		return nil, version.problem("there is no version %s; this program writes version %d", version.Value, Version)
	case n > Version:
		return nil, version.problem("the preset has version %d and this program reads up to %d; it needs a newer dsh-web", n, Version)
	}
	for ; n < Version; n++ {
		if err := migrations()[n](top); err != nil {
			return nil, err
		}
		doc.warnings = append(doc.warnings, version.problem("the preset has the old version %d and was read as version %d; the file is unchanged", n, n+1).Error())
	}
	if entries, err = top.entries(); err != nil { // keys may have new names
		return nil, err
	}
	if err := decode(entries, doc); err != nil {
		return nil, err
	}
	return doc, nil
}

// migrations bring a preset from the version that is their index to the next one.
func migrations() []func(value) error {
	return []func(value) error{
		// Version 0, the drafts' format, called rows plugins, use type and with config.
		func(top value) error {
			rename(top, "plugins", "rows")
			return eachRow(top, func(row value) {
				rename(row, "plugins", "rows")
				rename(row, "type", "use")
				rename(row, "config", "with")
			})
		},
	}
}

func rename(v value, from, to string) {
	for i := 0; i+1 < len(v.Content) && v.Kind == yaml.MappingNode; i += 2 {
		if v.Content[i].Value == from {
			v.Content[i].Value = to
		}
	}
}

// eachRow calls f for every row below v, outer ones first. The shape is not its business.
func eachRow(v value, f func(value)) error {
	for i := 0; i+1 < len(v.Content) && v.Kind == yaml.MappingNode; i += 2 {
		if v.Content[i].Value != "rows" {
			continue
		}
		for _, n := range v.Content[i+1].Content {
			row := value{n, v.file}
			f(row)
			if err := eachRow(row, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// plain refuses what presets don't use of YAML: aliases could make a small file endless, and tags mean nothing here.
func plain(v value, depth int) error {
	switch {
	case v.Kind == yaml.AliasNode || v.Anchor != "":
		return v.problem("anchors and aliases are not supported; write it out")
	case v.Style&yaml.TaggedStyle != 0:
		return v.problem("the tag %s is not supported", v.Tag)
	case depth > 4*maxDepth:
		return v.problem("this is nested too deeply")
	}
	for _, n := range v.Content {
		if err := plain(value{n, v.file}, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// unreadable finds the first byte that text doesn't have.
func unreadable(data []byte) (line, column int, found bool) {
	line, column = 1, 1
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		if r == utf8.RuneError && n == 1 || r < ' ' && r != '\n' && r != '\r' && r != '\t' || r == 0x7f {
			return line, column, true
		}
		data = data[n:]
		if column++; r == '\n' {
			line, column = line+1, 1
		}
	}
	return 0, 0, false
}

func onlyComments(data []byte) bool {
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' && line != "---" {
			return false
		}
	}
	return true
}

var yamlErrorText = regexp.MustCompile(`(?s)^yaml: (?:line (\d+): )?(.*)$`)

// yamlError takes the line out of the library's message, which knows no column.
func yamlError(err error) (line int, text string) {
	var typed *yaml.TypeError
	if errors.As(err, &typed) && len(typed.Errors) > 0 {
		err = errors.New("yaml: " + typed.Errors[0])
	}
	m := yamlErrorText.FindStringSubmatch(err.Error())
	if m == nil {
		return 1, "this is not YAML: " + err.Error()
	}
	line, _ = strconv.Atoi(m[1])
	return max(line, 1), "this is not YAML: " + m[2]
}

// firstColumn is where a line's text begins.
func firstColumn(data []byte, line int) int {
	lines := strings.Split(string(data), "\n")
	if line > len(lines) {
		return 1
	}
	text := lines[line-1]
	return utf8.RuneCountInString(text) - utf8.RuneCountInString(strings.TrimLeft(text, " \t")) + 1
}
