package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// browse opens the platform's browser.
func browse(url string) error {
	name := "xdg-open"
	if runtime.GOOS == "darwin" {
		name = "open"
	}
	return exec.Command(name, url).Start()
}

// addressFile, in the data directory, says where the running host is reached; dsh-web open reads it.
const addressFile = "address"

// openCommand prints a fresh login URL of the running host.
func (p *program) openCommand() *cobra.Command {
	return &cobra.Command{Use: "open", Short: "Print a fresh login URL of the running host", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		c, err := loadConfig(cmd.Flags(), p.env)
		if err != nil {
			return err
		}
		url, err := freshLogin(cmd.Context(), c.data)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(p.stdout, url)
		return err
	}}
}

// local makes one request of the running host of a data directory, over its socket.
func local(ctx context.Context, data, method, path, contentType string, body io.Reader) (*http.Response, error) {
	base, err := os.ReadFile(filepath.Join(data, addressFile))
	if err != nil {
		return nil, fmt.Errorf("no host runs on %s; start one with dsh-web serve (%w)", data, err)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSpace(string(base))+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType)
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(data, "sock"))
		},
	}}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no host answers on %s; start one with dsh-web serve (%w)", data, err)
	}
	return res, nil
}

// freshLogin asks the host of a data directory for a login URL.
func freshLogin(ctx context.Context, data string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	res, err := local(ctx, data, http.MethodPost, "api/v1/auth/code", "application/json", strings.NewReader("{}"))
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the host answered %s", res.Status)
	}
	var out struct{ Code string }
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil {
		return "", err
	}
	base, err := os.ReadFile(filepath.Join(data, addressFile))
	if err != nil {
		return "", err
	}
	address := strings.TrimSpace(string(base))
	if out.Code == "" {
		return address, nil
	}
	return address + "#code=" + out.Code, nil
}
