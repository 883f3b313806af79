package dshweb_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestImageFiles reads docker-compose.yml strictly and the Dockerfile line by line: no Docker engine is needed to see that they hold together.
func TestImageFiles(t *testing.T) {
	raw, err := os.ReadFile("docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	var compose struct {
		Services map[string]struct {
			Build       string
			Init        bool
			Ports       []string
			Environment map[string]string
			Volumes     []string
			Healthcheck struct {
				Test     []string
				Interval string
			}
			Restart string
		}
		Volumes map[string]any
	}
	dec := yaml.NewDecoder(strings.NewReader(string(raw)))
	dec.KnownFields(true)
	if err := dec.Decode(&compose); err != nil {
		t.Fatal(err)
	}
	host, ok := compose.Services["dsh-web"]
	if !ok || host.Build != "." {
		t.Fatalf("services: %+v", compose.Services)
	}
	for _, p := range host.Ports {
		if !strings.HasPrefix(p, "127.0.0.1:") {
			t.Errorf("port %s is published beyond this machine", p)
		}
	}
	for _, v := range host.Volumes {
		name, _, _ := strings.Cut(v, ":")
		if _, ok := compose.Volumes[name]; !ok && !strings.HasPrefix(name, "$") {
			t.Errorf("volume %s isn't declared", v)
		}
	}

	dockerfile, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	instruction := regexp.MustCompile(`^(#|$|FROM|WORKDIR|COPY|RUN|ENV|VOLUME|EXPOSE|ENTRYPOINT|CMD)( |$)`)
	for n, line := range strings.Split(string(dockerfile), "\n") {
		if !instruction.MatchString(line) {
			t.Errorf("Dockerfile:%d: %q is no instruction", n+1, line)
		}
		if files, ok := strings.CutPrefix(line, "COPY "); ok && !strings.HasPrefix(files, "--from=") {
			words := strings.Fields(files)
			for _, f := range words[:len(words)-1] {
				if _, err := os.Stat(f); err != nil {
					t.Errorf("Dockerfile:%d: %v", n+1, err)
				}
			}
		}
	}
	want := regexp.MustCompile(`(?m)^FROM golang:(\d+\.\d+)`).FindSubmatch(dockerfile)
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if want == nil || !strings.Contains(string(mod), "\ngo "+string(want[1])) {
		t.Errorf("the image builds with another Go than go.mod asks for: %q", want)
	}
}
