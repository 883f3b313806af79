package web

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dsh-web/dsh-web/host"
	"github.com/dsh-web/dsh-web/host/session"
	"github.com/dsh-web/dsh-web/web/guard"
)

// Directory is one place to go to from a directory.
type Directory struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// Workspaces is a directory and where to go from it.
type Workspaces struct {
	Path      string      `json:"path"`
	Parent    string      `json:"parent,omitempty"`
	Entries   []Directory `json:"entries" doc:"Directories only."`
	Truncated bool        `json:"truncated,omitempty"`
	Recent    []string    `json:"recent" doc:"Workspaces of recent sessions."`
}

// Bounds of a directory's answer.
const (
	maxDirectories = 1000
	maxRecent      = 20
	recentSessions = 200
)

func (a *api) workspaceRoutes() {
	s := a.server
	register(a, route{method: "GET", path: "/workspaces", id: "list-workspaces", tag: "workspaces", rule: guard.Rule{Access: guard.Owner},
		summary: "Choose a directory", errors: []int{404}},
		func(ctx context.Context, in *struct {
			Path string `query:"path" doc:"An absolute path; the home directory when absent."`
		}) (*struct{ Body Workspaces }, error) {
			out, err := s.workspaces(ctx, in.Path)
			return &struct{ Body Workspaces }{out}, err
		})
	register(a, route{method: "POST", path: "/workspaces", id: "make-workspace", tag: "workspaces", rule: guard.Rule{Access: guard.Owner, Body: guard.JSON},
		summary: "Make a directory, if there is none, inside one that exists", errors: []int{404}},
		func(ctx context.Context, in *struct {
			Body struct {
				Path string `json:"path"`
			}
		}) (*struct{ Body Workspaces }, error) {
			dir, err := absolute(in.Body.Path)
			if err != nil {
				return nil, err
			}
			if err := os.Mkdir(dir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, pathError(err)
			}
			out, err := s.workspaces(ctx, dir)
			return &struct{ Body Workspaces }{out}, err
		})
}

func absolute(dir string) (string, error) {
	if !filepath.IsAbs(dir) || strings.ContainsRune(dir, 0) {
		return "", refuse(host.CodeWorkspaceInvalid, "The path must be absolute.")
	}
	return filepath.Clean(dir), nil
}

func (s *Server) workspaces(ctx context.Context, dir string) (Workspaces, error) {
	out := Workspaces{Entries: []Directory{}, Recent: []string{}}
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			home = "/"
		}
		dir = home
	}
	dir, err := absolute(dir)
	if err != nil {
		return out, err
	}
	out.Path = dir
	if parent := filepath.Dir(dir); parent != dir {
		out.Parent = parent
	}
	if out.Entries, out.Truncated, err = directories(dir); err != nil {
		return out, err
	}
	list, err := s.host.List(ctx, session.Query{Limit: recentSessions})
	if err != nil {
		return out, err
	}
	for _, in := range list.Sessions {
		if len(out.Recent) < maxRecent && !slices.Contains(out.Recent, in.Workspace) {
			out.Recent = append(out.Recent, in.Workspace)
		}
	}
	return out, nil
}

// directories lists the visible directories in dir, symbolic links to directories too.
func directories(dir string) (list []Directory, truncated bool, err error) {
	list = []Directory{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return list, false, pathError(err)
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") {
			continue
		}
		path := filepath.Join(dir, name)
		if !e.IsDir() {
			if e.Type()&fs.ModeSymlink == 0 {
				continue
			}
			if to, err := os.Stat(path); err != nil || !to.IsDir() {
				continue
			}
		}
		if len(list) == maxDirectories {
			return list, true, nil
		}
		list = append(list, Directory{Name: name, Path: path})
	}
	return list, false, nil
}

func pathError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return refuse("path-not-found", "There is no such directory.")
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		return refuse(host.CodeWorkspaceInvalid, "The directory can't be used: "+p.Err.Error()+".")
	}
	return err
}
