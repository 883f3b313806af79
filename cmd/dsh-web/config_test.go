package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// load reads a configuration from a file's text, an environment and flags.
func load(t *testing.T, file string, env, args []string) (*config, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	configFlags(flags)
	if err := flags.Parse(append([]string{"--data", dir}, args...)); err != nil {
		t.Fatal(err)
	}
	return loadConfig(flags, env)
}

func TestPrecedence(t *testing.T) {
	file := "listen: 127.0.0.1:1\nlogLevel: warn\nlogFormat: json\nallowHost: [a, b]\neviction: {idle: 1h}\n"
	env := []string{"DSH_WEB_LISTEN=127.0.0.1:2", "DSH_WEB_LOG_LEVEL=error", "DSH_WEB_ALLOW_HOST=c,d", "DSH_WEB_AUTH=", "DSH_WEB_EVICTION_IDLE=0"}
	c, err := load(t, file, env, []string{"--listen", "127.0.0.1:3", "--allow-host", "e"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:3" || c.LogLevel != "error" || c.LogFormat != "json" || strings.Join(c.AllowHost, " ") != "e" || c.Auth != "on" ||
		c.Eviction.Idle != 0 || c.DefaultPreset != "minimal" || c.Demo.Pace != 15*time.Millisecond {
		t.Errorf("got %+v", c.view())
	}
	if c, err = load(t, "", nil, nil); err != nil || c.Listen != "127.0.0.1:3080" || c.Eviction.Idle != 30*time.Minute {
		t.Errorf("an empty file: %v", err)
	}
}

func TestConfigurationThatIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		env  []string
		says string
	}{
		"unknown key":          {file: "lisen: x", says: "lisen"},
		"key in another case":  {file: "Listen: 127.0.0.1:1", says: "Listen"},
		"unknown nested key":   {file: "eviction: {idel: 1m}", says: "idel"},
		"unknown provider key": {file: "providers: [{id: x, kind: openai, baseURI: y}]", says: "baseURI"},
		"unknown variable":     {env: []string{"DSH_WEB_LISTENING=x"}, says: "DSH_WEB_LISTENING"},
		"time without a unit":  {file: "eviction: {idle: 30}", says: "unit"},
		"fraction of a time":   {file: "demo: {pace: 1.5}", says: "unit"},
		"variable without one": {env: []string{"DSH_WEB_EVICTION_IDLE=30"}, says: "unit"},
		"negative time":        {file: "eviction: {usedShell: -5m}", says: "eviction.usedShell"},
		"text for a number":    {file: "limits: {sessions: many}", says: "sessions"},
		"list for a text":      {file: "listen: [127.0.0.1:1]", says: "listen"},
		"replay at a server":   {file: "providers: [{id: x, kind: replay, file: y, baseUrl: http://z}]", says: "take out baseUrl"},
		"replay's variable":    {file: "providers: [{id: x, kind: replay, file: y, baseUrlEnv: Z}]", says: "take out baseUrl"},
		"replay with a key":    {file: "providers: [{id: x, kind: replay, file: y, apiKeyEnv: Z}]", says: "take out apiKeyEnv"},
		"no such authority":    {file: "auth: maybe", says: "auth"},
		"open to others":       {file: "listen: 0.0.0.0:80", says: "--allow-host"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := load(t, c.file, c.env, nil); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}
