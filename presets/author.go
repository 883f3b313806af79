package presets

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds of one copied preset.
const (
	maxCopyFiles = 1000
	maxCopyBytes = 16 << 20
)

// free says whether the user may have a preset with this id, and whether there is one.
func (v view) free(id string) (exists bool, err error) {
	if !idPattern.MatchString(id) {
		return false, fmt.Errorf("preset %q: %w", id, ErrInvalidID)
	}
	f, exists := v.all[id]
	if exists && f.root.origin != User {
		return false, fmt.Errorf("preset %s is %s: %w", id, f.root.origin, ErrReadOnly)
	}
	return exists, nil
}

// writable opens the user's directory, which it makes if need be.
func (r *Roster) writable() (*os.Root, error) {
	if r.user == "" {
		return nil, fmt.Errorf("there is no directory for presets of your own: %w", ErrReadOnly)
	}
	if err := os.MkdirAll(r.user, 0o700); err != nil {
		return nil, fmt.Errorf("presets folder: %w", err)
	}
	return os.OpenRoot(r.user)
}

// Write saves text as the user's preset id, new or not. A text that can't be mounted is refused with
// the reason and changes nothing. The file is replaced in one step.
func (r *Roster) Write(id string, text []byte) error {
	v := r.open()
	defer v.close()
	if _, err := v.free(id); err != nil {
		return err
	}
	doc, err := parse(fileName, text)
	if err != nil {
		return err
	}
	if _, err := r.check(v, id, doc); err != nil {
		return err
	}
	dir, err := r.writable()
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Mkdir(id, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write preset %s: %w", id, err)
	}
	part := path.Join(id, "."+fileName+".part")
	if err := errors.Join(dir.WriteFile(part, text, 0o600), dir.Rename(part, path.Join(id, fileName))); err != nil {
		_ = dir.Remove(part) // it may not be there
		return fmt.Errorf("write preset %s: %w", id, err)
	}
	return nil
}

// Delete removes the user's preset id, broken or not, with its folder.
func (r *Roster) Delete(id string) error {
	v := r.open()
	defer v.close()
	f, err := v.find(id)
	if err != nil {
		return err
	}
	if f.root.origin != User {
		return fmt.Errorf("preset %s is %s: %w", id, f.root.origin, ErrReadOnly)
	}
	dir, err := r.writable()
	if err != nil {
		return err
	}
	defer dir.Close()
	// In one step out of sight, so that nobody sees half a preset.
	gone := ".deleted-" + rand.Text()
	if err := dir.Rename(f.id, gone); err != nil {
		return fmt.Errorf("delete preset %s: %w", id, err)
	}
	return dir.RemoveAll(gone)
}

// Copy makes the user's preset id from another one: its whole folder, links replaced by what they lead
// to, for the owner's eyes only, without name and order. A copy that fails leaves nothing.
func (r *Roster) Copy(id, from string) error {
	v := r.open()
	defer v.close()
	exists, err := v.free(id)
	if err == nil && exists {
		err = fmt.Errorf("preset %s: %w", id, ErrTaken)
	}
	if err != nil {
		return err
	}
	src, err := v.find(from)
	if err != nil {
		return err
	}
	if _, err := src.parse(); err != nil {
		return err
	}
	dir, err := r.writable()
	if err != nil {
		return err
	}
	defer dir.Close()
	part := ".copy-" + rand.Text()
	if err := dir.Mkdir(part, 0o700); err != nil {
		return fmt.Errorf("copy preset %s: %w", from, err)
	}
	err = copyFolder(dir, part, src)
	if err == nil {
		err = dir.Rename(part, id) // fails when something is there by now
	}
	if err != nil {
		return errors.Join(fmt.Errorf("copy preset %s: %w", from, err), dir.RemoveAll(part))
	}
	return nil
}

func copyFolder(dst *os.Root, part string, src found) error {
	files, size := 0, 0
	var walk func(from, to string, depth int) error
	walk = func(from, to string, depth int) error {
		entries, err := fs.ReadDir(src.root.fsys, from)
		if err != nil {
			return err
		}
		for _, e := range entries {
			name, target := path.Join(from, e.Name()), path.Join(to, e.Name())
			info, err := fs.Stat(src.root.fsys, name) // through links, as far as they stay inside
			if err != nil {
				return err
			}
			files++
			size += int(info.Size())
			switch {
			case files > maxCopyFiles || size > maxCopyBytes || depth > maxDepth:
				return fmt.Errorf("the folder is too large: more than %d files, %d MiB or %d levels", maxCopyFiles, maxCopyBytes>>20, maxDepth)
			case info.IsDir():
				if err := dst.Mkdir(target, 0o700); err != nil {
					return err
				}
				if err := walk(name, target, depth+1); err != nil {
					return err
				}
				continue
			case !info.Mode().IsRegular():
				return fmt.Errorf("%s is not a regular file", name)
			}
			data, err := fs.ReadFile(src.root.fsys, name)
			if err != nil {
				return err
			}
			if target == path.Join(part, fileName) {
				if data, err = without(data, "name", "order"); err != nil {
					return err
				}
			}
			if err := dst.WriteFile(target, data, 0o600); err != nil {
				return err
			}
		}
		return nil
	}
	return walk(src.id, part, 0)
}

// without removes keys of the top mapping from a preset's text, and leaves every other line as it is,
// comments included.
func without(text []byte, keys ...string) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	top := doc.Content[0]
	lines := strings.SplitAfter(string(text), "\n")
	drop := make([]bool, len(lines))
	for i := 0; i+1 < len(top.Content); i += 2 {
		if !slices.Contains(keys, top.Content[i].Value) {
			continue
		}
		end := len(lines)
		if i+2 < len(top.Content) {
			end = top.Content[i+2].Line - 1
			for end > top.Content[i].Line && idle(lines[end-1]) { // what stands before the next key belongs to that
				end--
			}
		}
		for l := top.Content[i].Line - 1; l < end; l++ {
			drop[l] = true
		}
	}
	var out strings.Builder
	for i, line := range lines {
		if !drop[i] {
			out.WriteString(line)
		}
	}
	if doc, err := parse(fileName, []byte(out.String())); err == nil && top.Style&yaml.FlowStyle == 0 && doc.Name == "" && doc.Order == 0 {
		return []byte(out.String()), nil
	}
	// Not written line by line: written anew.
	for i := len(top.Content) - 2; i >= 0; i -= 2 {
		if slices.Contains(keys, top.Content[i].Value) {
			top.Content = slices.Delete(top.Content, i, i+2)
		}
	}
	return yaml.Marshal(top)
}

// idle is a line that says nothing to YAML.
func idle(line string) bool {
	line = strings.TrimSpace(line)
	return line == "" || line[0] == '#'
}
