package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	koanfyaml "github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"github.com/dsh-web/dsh-web/host/model"
)

// config is the whole configuration of the host: defaults < file < environment < flags. Keys are spelled as in the file.
type config struct {
	Listen    string   `koanf:"listen"`
	Auth      string   `koanf:"auth"` // on, off
	AllowHost []string `koanf:"allowHost"`
	BasePath  string   `koanf:"basePath"`
	LogLevel  string   `koanf:"logLevel"`
	LogFormat string   `koanf:"logFormat"` // text, json

	DefaultPreset string       `koanf:"defaultPreset"`
	DefaultModel  model.Choice `koanf:"defaultModel"`
	// Providers adds to, and overrides, the built-in providers.
	Providers []model.Provider `koanf:"providers"`
	Presets   struct {
		Roots []string `koanf:"roots"` // further folders of presets, before DIR/presets
	} `koanf:"presets"`
	Tools struct {
		Presentation string `koanf:"presentation"`
	} `koanf:"tools"`
	Store struct {
		Synchronous string `koanf:"synchronous"` // full, normal
	} `koanf:"store"`
	Eviction struct {
		Idle      time.Duration `koanf:"idle"`      // of agents that never used their shell; 0 never
		UsedShell time.Duration `koanf:"usedShell"` // of the others; 0 never
	} `koanf:"eviction"`
	Retention struct {
		Archive time.Duration `koanf:"archive"` // of sessions that nobody touches; 0 never
		Delete  time.Duration `koanf:"delete"`  // of archived ones; 0 never
	} `koanf:"retention"`
	Limits struct {
		Connections int `koanf:"connections"`
		Sockets     int `koanf:"sockets"`
		Sessions    int `koanf:"sessions"` // live at a time
	} `koanf:"limits"`
	Demo struct {
		Pace time.Duration `koanf:"pace"` // between the demo's pieces of text
	} `koanf:"demo"`

	data   string // the data directory; it holds the file, so it isn't a key of it
	uiDev  string
	record string // file for a recording of all model traffic, "" for none
}

func defaults() map[string]any {
	return map[string]any{
		"listen": "127.0.0.1:3080", "auth": "on", "logLevel": "info", "logFormat": "text",
		"defaultPreset": "minimal", "tools.presentation": "native", "store.synchronous": "full",
		"eviction.idle": "30m", "eviction.usedShell": "0s", "retention.archive": "0s", "retention.delete": "0s",
		"limits.connections": 4096, "limits.sockets": 512, "limits.sessions": 10000,
		"demo.pace": "15ms",
	}
}

// environment maps a variable to its key. Only simple values have one.
var environment = map[string]string{
	"DSH_WEB_LISTEN": "listen", "DSH_WEB_AUTH": "auth", "DSH_WEB_ALLOW_HOST": "allowHost", "DSH_WEB_BASE_PATH": "basePath",
	"DSH_WEB_LOG_LEVEL": "logLevel", "DSH_WEB_LOG_FORMAT": "logFormat", "DSH_WEB_DEFAULT_PRESET": "defaultPreset",
	"DSH_WEB_DEFAULT_PROVIDER": "defaultModel.provider", "DSH_WEB_DEFAULT_MODEL": "defaultModel.model",
	"DSH_WEB_TOOLS_PRESENTATION": "tools.presentation", "DSH_WEB_STORE_SYNCHRONOUS": "store.synchronous",
	"DSH_WEB_EVICTION_IDLE": "eviction.idle", "DSH_WEB_EVICTION_USED_SHELL": "eviction.usedShell",
	"DSH_WEB_RETENTION_ARCHIVE": "retention.archive", "DSH_WEB_RETENTION_DELETE": "retention.delete",
	"DSH_WEB_LIMITS_CONNECTIONS": "limits.connections", "DSH_WEB_LIMITS_SOCKETS": "limits.sockets", "DSH_WEB_LIMITS_SESSIONS": "limits.sessions",
	"DSH_WEB_DEMO_PACE": "demo.pace",
}

// flagKeys maps a flag to its key.
var flagKeys = map[string]string{
	"listen": "listen", "auth": "auth", "allow-host": "allowHost", "base-path": "basePath", "log-level": "logLevel", "log-format": "logFormat",
}

// configFlags declares the flags that every command of the host shares.
func configFlags(f *pflag.FlagSet) {
	f.String("listen", "127.0.0.1:3080", "address to listen on; port 0 picks one")
	f.String("data", "", "data directory (default $DSH_HOME, else the user's data directory + dsh-web)")
	f.String("config", "", "configuration file (default DIR/config.yaml, which need not exist)")
	f.String("auth", "on", "on or off; off only on a loopback address, for tests")
	f.StringSlice("allow-host", nil, "further host name that requests may carry; repeatable")
	f.String("base-path", "", "path under which a proxy serves the host, for example /agents/")
	f.String("log-level", "info", "debug, info, warn or error")
	f.String("log-format", "text", "text or json")
	f.String("ui-dev", "", "address of a development server that serves the page")
}

// loadConfig reads defaults, file, environment and flags. Errors name the file, variable or flag and the key.
func loadConfig(flags *pflag.FlagSet, env []string) (*config, error) {
	vars := map[string]string{}
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok {
			vars[k] = v
		}
	}
	data, _ := flags.GetString("data")
	if data == "" {
		data = vars["DSH_HOME"]
	}
	if data == "" {
		dir, err := userData(vars)
		if err != nil {
			return nil, err
		}
		data = filepath.Join(dir, "dsh-web")
	}
	data, err := filepath.Abs(data)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}

	k := koanf.New(".")
	if err := k.Load(confmap.Provider(defaults(), "."), nil); err != nil {
		return nil, err
	}
	file, _ := flags.GetString("config")
	must := file != ""
	if !must {
		file = filepath.Join(data, "config.yaml")
	}
	raw, err := os.ReadFile(file)
	switch {
	case err == nil:
		if err := k.Load(rawbytes.Provider(raw), koanfyaml.Parser()); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if err := decode(k, &config{}); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	case must || !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read configuration: %w", err)
	}

	over := map[string]any{}
	for name, value := range vars {
		if !strings.HasPrefix(name, "DSH_WEB_") || value == "" {
			continue // an empty one counts as unset
		}
		key, ok := environment[name]
		if !ok {
			return nil, fmt.Errorf("environment: %s is not a setting; the settings are %s", name, strings.Join(sortedKeys(environment), ", "))
		}
		over[key] = value
		if key == "allowHost" {
			over[key] = strings.Split(value, ",")
		}
	}
	if err := k.Load(confmap.Provider(over, "."), nil); err != nil {
		return nil, err
	}
	if err := decode(k, &config{}); err != nil {
		return nil, fmt.Errorf("environment: %w", err)
	}
	set := map[string]any{}
	flags.Visit(func(f *pflag.Flag) {
		if key, ok := flagKeys[f.Name]; ok {
			set[key] = f.Value.String()
			if list, ok := f.Value.(pflag.SliceValue); ok {
				set[key] = list.GetSlice()
			}
		}
	})
	if err := k.Load(confmap.Provider(set, "."), nil); err != nil {
		return nil, err
	}
	c := &config{data: data}
	c.uiDev, _ = flags.GetString("ui-dev")
	if err := decode(k, c); err != nil {
		return nil, err
	}
	for i, p := range c.Providers {
		if p.File == "" || filepath.IsAbs(p.File) {
			continue
		}
		// As seen from the configuration that names it.
		if c.Providers[i].File, err = filepath.Abs(filepath.Join(filepath.Dir(file), p.File)); err != nil {
			return nil, fmt.Errorf("providers: %w", err)
		}
	}
	return c, c.check()
}

func decode(k *koanf.Koanf, c *config) error {
	return k.UnmarshalWithConf("", c, koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
		Result: c, TagName: "koanf", ErrorUnused: true, WeaklyTypedInput: true, MatchName: matchKey,
		DecodeHook: mapstructure.ComposeDecodeHookFunc(unit, mapstructure.StringToTimeDurationHookFunc()),
	}})
}

// unit refuses a time without one: 30 would be 30 nanoseconds. 0 needs none.
func unit(from, to reflect.Type, data any) (any, error) {
	if to != reflect.TypeFor[time.Duration]() || from == to || !reflect.Zero(from).CanConvert(reflect.TypeFor[float64]()) || reflect.ValueOf(data).IsZero() {
		return data, nil
	}
	return nil, fmt.Errorf("%v is a time without a unit; write %vm, or %vs", data, data, data)
}

// matchKey pairs keys with fields: exactly for our own, by the JSON spelling for the vocabulary of package model.
func matchKey(key, field string) bool {
	return key == field || strings.EqualFold(key, field)
}

func (c *config) check() error {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("listen: %q is not an address like 127.0.0.1:3080", c.Listen)
	}
	switch {
	case c.Auth != "on" && c.Auth != "off":
		return fmt.Errorf("auth: %q is neither on nor off", c.Auth)
	case c.Auth == "off" && !loopback(host):
		return fmt.Errorf("auth: off is only for a loopback address, and %s isn't one", c.Listen)
	case !loopback(host) && len(c.AllowHost) == 0:
		return fmt.Errorf("listen: %s is reachable from other machines; name the host that browsers will use with --allow-host NAME, or listen on 127.0.0.1", c.Listen)
	case c.Tools.Presentation != "native":
		return fmt.Errorf("tools.presentation: %q is not known; the only one is native", c.Tools.Presentation)
	case !slices.Contains([]string{"full", "normal"}, c.Store.Synchronous):
		return fmt.Errorf("store.synchronous: %q is neither full nor normal", c.Store.Synchronous)
	case !slices.Contains([]string{"debug", "info", "warn", "error"}, c.LogLevel):
		return fmt.Errorf("logLevel: %q is not debug, info, warn or error", c.LogLevel)
	case !slices.Contains([]string{"text", "json"}, c.LogFormat):
		return fmt.Errorf("logFormat: %q is neither text nor json", c.LogFormat)
	case c.Retention.Archive < 0 || c.Retention.Delete < 0:
		return errors.New("retention: a time is 0, for never, or more")
	case c.Eviction.Idle < 0:
		return fmt.Errorf("eviction.idle: %s is less than 0, which means never", c.Eviction.Idle)
	case c.Eviction.UsedShell < 0:
		return fmt.Errorf("eviction.usedShell: %s is less than 0, which means never", c.Eviction.UsedShell)
	case c.Demo.Pace < 0:
		return fmt.Errorf("demo.pace: %s is less than 0", c.Demo.Pace)
	case c.Limits.Connections < 1 || c.Limits.Sockets < 1 || c.Limits.Sessions < 1:
		return fmt.Errorf("limits: each needs at least 1")
	}
	for _, p := range c.Providers {
		if err := checkRecording(p); err != nil {
			return err
		}
	}
	return nil
}

// view is the configuration in the spelling of the file.
func (c *config) view() map[string]any {
	return map[string]any{
		"data": c.data, "listen": c.Listen, "auth": c.Auth, "allowHost": append([]string{}, c.AllowHost...), "basePath": basePath(c),
		"logLevel": c.LogLevel, "logFormat": c.LogFormat, "defaultPreset": c.DefaultPreset, "defaultModel": c.DefaultModel,
		"providers": c.Providers, "presets": map[string]any{"roots": append([]string{}, c.Presets.Roots...)},
		"tools": map[string]any{"presentation": c.Tools.Presentation}, "store": map[string]any{"synchronous": c.Store.Synchronous},
		"eviction":  map[string]any{"idle": c.Eviction.Idle.String(), "usedShell": c.Eviction.UsedShell.String()},
		"retention": map[string]any{"archive": c.Retention.Archive.String(), "delete": c.Retention.Delete.String()},
		"limits":    map[string]any{"connections": c.Limits.Connections, "sockets": c.Limits.Sockets, "sessions": c.Limits.Sessions},
		"demo":      map[string]any{"pace": c.Demo.Pace.String()},
	}
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// userData is the platform's folder for a user's data.
func userData(vars map[string]string) (string, error) {
	home := vars["HOME"]
	switch {
	case runtime.GOOS == "windows" && vars["LocalAppData"] != "":
		return vars["LocalAppData"], nil
	case runtime.GOOS == "darwin" && home != "":
		return filepath.Join(home, "Library", "Application Support"), nil
	case filepath.IsAbs(vars["XDG_DATA_HOME"]):
		return vars["XDG_DATA_HOME"], nil
	case home != "":
		return filepath.Join(home, ".local", "share"), nil
	}
	return "", errors.New("there is no home directory to keep data in: give --data DIR or set DSH_HOME")
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
