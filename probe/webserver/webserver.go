// Package webserver runs the web servers that the HTTP probes measure: Debian's nginx or Varnish, with
// configuration, files and counters in a directory of the run. It neither reads nor writes anything of the
// host's own servers. Each serves the same objects, one for each of Sizes.
package webserver

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	"isolane.dev/isolane/quantity"
)

// The values of Settings.Software.
const (
	Nginx   = "nginx"
	Varnish = "varnish"
)

// Settings say which server runs, and how.
type Settings struct {
	Software string `json:"server"` // default nginx
	// Workers is the number of nginx's worker processes, or of Varnish's thread pools; 0: one for each CPU that
	// the server may use.
	Workers int `json:"workers,omitempty"`
}

// Port returns the default port of the server: the registered alternative to 80, or the next one.
func (s Settings) Port() uint16 {
	if s.Software == Varnish {
		return 8081
	}
	return 8080
}

// Needs returns the server's program and its Debian package.
func (s Settings) Needs() (program, debian string) { return s.program(), s.Software }

// maxWorkers is more than any machine has CPUs.
const maxWorkers = 4096

// Validate rejects other servers.
func (s Settings) Validate() error {
	switch {
	case s.Software != Nginx && s.Software != Varnish:
		return fmt.Errorf("server: %q: expected nginx or varnish", s.Software)
	case s.Workers < 0 || s.Workers > maxWorkers:
		return fmt.Errorf("workers: %d: expected 1-%d, or 0 for one per CPU", s.Workers, maxWorkers)
	}
	return nil
}

// Sizes returns the sizes of the objects.
func Sizes() []quantity.Bytes { return []quantity.Bytes{1 << 10, 100 << 10, 1 << 20} }

// ValidateSize rejects a size without an object.
func ValidateSize(size quantity.Bytes) error {
	if !slices.Contains(Sizes(), size) {
		return fmt.Errorf("size: %s: expected one of %s", size, Sizes())
	}
	return nil
}

// Path returns the path of the object of a size on each server: "/1Mi".
func Path(size quantity.Bytes) string { return "/" + size.String() }

// program returns the name of the server's program.
func (s Settings) program() string {
	if s.Software == Varnish {
		return "varnishd"
	}
	return Nginx
}

// lookPath finds a program of a Debian package.
func lookPath(program, debian string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("%s is not installed: apt-get install %s", program, debian)
	}
	return path, nil
}

// prepare writes what the server needs into dir, which must be absolute, and returns its command line. The
// working directory of the server is the subdirectory of dir with its name.
func (s Settings) prepare(addr netip.AddrPort, dir string) ([]string, error) {
	program, err := lookPath(s.program(), s.Software) // the packages have the names of the servers
	if err != nil {
		return nil, err
	}
	if s.Workers == 0 {
		s.Workers = runtime.NumCPU() // CPUs that this process may use, and the server with it
	}
	dir = filepath.Join(dir, s.Software)
	objects := filepath.Join(dir, "objects")
	if err := os.MkdirAll(objects, 0o755); err != nil {
		return nil, err
	}
	for _, size := range Sizes() {
		body := bytes.Repeat([]byte("isolane\n"), int(size/8))
		if err := os.WriteFile(filepath.Join(objects, size.String()), body, 0o644); err != nil {
			return nil, err
		}
	}
	if s.Software == Varnish {
		return s.varnish(program, addr, dir)
	}
	return s.nginx(program, addr, dir)
}
