package proc

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const commandMax = 200 // bytes of a process's command that are told

// describe tells what the processes are; those that are gone by now are left out.
func describe(pids []int) []Process {
	out := make([]Process, 0, len(pids))
	nets := map[string]map[string]int{} // network namespace → socket inode → port
	for _, pid := range pids {
		command, ok := commandOf(pid)
		if !ok {
			continue
		}
		out = append(out, Process{PID: pid, Command: command, Ports: portsOf(pid, nets)})
	}
	return out
}

func commandOf(pid int) (string, bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	var buf [4096]byte
	data, err := readSmall(dir+"/cmdline", buf[:])
	if err != nil {
		return "", false
	}
	if len(bytes.Trim(data, "\x00")) == 0 {
		if data, err = readSmall(dir+"/comm", buf[:]); err != nil {
			return "", false
		}
		return "[" + strings.TrimSpace(string(data)) + "]", true
	}
	text := strings.ReplaceAll(string(bytes.TrimRight(data, "\x00")), "\x00", " ")
	if len(text) > commandMax {
		text = text[:commandMax]
	}
	return strings.ToValidUTF8(text, "\uFFFD"), true
}

// portsOf finds the TCP ports on which pid listens, in its own network namespace.
func portsOf(pid int, nets map[string]map[string]int) []int {
	dir := "/proc/" + strconv.Itoa(pid)
	fds, err := os.ReadDir(dir + "/fd")
	if err != nil {
		return nil // gone, or not ours to look at
	}
	var listening map[string]int
	var ports []int
	for _, fd := range fds {
		to, err := os.Readlink(filepath.Join(dir, "fd", fd.Name()))
		if err != nil || !strings.HasPrefix(to, "socket:[") {
			continue
		}
		if listening == nil {
			net, _ := os.Readlink(dir + "/ns/net")
			if listening = nets[net]; listening == nil {
				listening = listeners(dir)
				nets[net] = listening
			}
		}
		inode := strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")
		if port := listening[inode]; port != 0 && !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	slices.Sort(ports)
	return ports
}

// listeners maps the inodes of listening TCP sockets to their ports.
func listeners(dir string) map[string]int {
	const listen = "0A"
	out := map[string]int{}
	for _, name := range []string{"/net/tcp", "/net/tcp6"} {
		data, err := os.ReadFile(dir + name)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line) // sl local remote state queues timer retransmits uid timeout inode ...
			if len(f) < 10 || f[3] != listen {
				continue
			}
			at := strings.LastIndexByte(f[1], ':')
			if port, err := strconv.ParseUint(f[1][at+1:], 16, 16); err == nil {
				out[f[9]] = int(port)
			}
		}
	}
	return out
}

func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
}

// ownExecutable is this program even when its file was replaced meanwhile.
func ownExecutable() (string, error) { return "/proc/self/exe", nil }
