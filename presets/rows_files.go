package presets

import (
	"context"
	"errors"

	"github.com/dsh-web/dsh-web/host/fsys"
	"github.com/dsh-web/dsh-web/host/scope"
	"github.com/dsh-web/dsh-web/tools"
	"github.com/dsh-web/dsh-web/tools/editor"
	"github.com/dsh-web/dsh-web/tools/files"
	"github.com/dsh-web/dsh-web/tools/search"
)

// fsLocalRow provides the bare file system of the machine.
func fsLocalRow() kind {
	return kindOf("fs-local", func() struct{} { return struct{}{} }, func(struct{}) ready {
		return ready{mount: func(_ context.Context, at site) error {
			locks := at.Locks
			if locks == nil {
				locks = &fsys.Locks{}
			}
			return at.provideFS(fsys.NewLocal(locks))
		}}
	})
}

// fsHostRow provides the host's confined file provider.
func fsHostRow() kind {
	return kindOf("fs-host", func() struct{} { return struct{}{} }, func(struct{}) ready {
		return ready{mount: func(_ context.Context, at site) error {
			if at.HostFS == nil {
				return errors.New("this host has no confined file provider")
			}
			return at.provideFS(at.HostFS)
		}}
	})
}

func (at site) provideFS(p fsys.Provider) error {
	if err := scope.Provide(at.scope, realm.fs, p); err != nil {
		return err
	}
	at.mounted.files = p
	return nil
}

// editorRow is the tool str_replace_editor over the file system that its scope sees.
func editorRow() kind {
	return kindOf("tool-str-replace-editor", editor.DefaultConfig, func(c editor.Config) ready {
		return ready{needs: []need{needs(realm.fs)}, mount: func(_ context.Context, at site) error {
			files, err := scope.Require(at.scope, realm.fs)
			if err != nil {
				return err
			}
			tool, err := editor.New(c, at.editorOptions(files))
			if err != nil {
				return err
			}
			return at.Tools.Add(at.scope, tool)
		}}
	})
}

func (at site) editorOptions(files fsys.Provider) editor.Options {
	return editor.Options{Files: files, Workspace: at.Session.Workspace, Images: at.Session.Images}
}

// filesRow is the editor's engine as four tools.
func filesRow() kind {
	return kindOf("tool-files", files.DefaultConfig, func(c files.Config) ready {
		return ready{needs: []need{needs(realm.fs)}, mount: func(_ context.Context, at site) error {
			provider, err := scope.Require(at.scope, realm.fs)
			if err != nil {
				return err
			}
			set, err := files.New(c, at.editorOptions(provider))
			if err != nil {
				return err
			}
			return at.addTools(set)
		}}
	})
}

// searchRow finds text and files.
func searchRow() kind {
	return kindOf("tool-search", search.DefaultConfig, func(c search.Config) ready {
		return ready{needs: []need{needs(realm.fs)}, mount: func(_ context.Context, at site) error {
			provider, err := scope.Require(at.scope, realm.fs)
			if err != nil {
				return err
			}
			set, err := search.New(c, provider, at.Session.Workspace)
			if err != nil {
				return err
			}
			return at.addTools(set)
		}}
	})
}

func (at site) addTools(set []tools.Tool) error {
	for _, tool := range set {
		if err := at.Tools.Add(at.scope, tool); err != nil {
			return err
		}
	}
	return nil
}
