package up

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A hub with impossible options says so with the flag, and makes nothing.
func TestStartRefused(t *testing.T) {
	programs := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if err := os.WriteFile(filepath.Join(programs, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, text, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	unwritable := t.TempDir() // as on a read-only disk, where a hub has been before
	if err = errors.Join(os.Mkdir(filepath.Join(unwritable, "log"), 0o700), os.Mkdir(filepath.Join(unwritable, "lock"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, says string
		o          Options
	}{
		{"no programs", "--programs: expected a folder with etcd and kube-apiserver", Options{Programs: t.TempDir(), Host: "127.0.0.1", Port: 1}},
		{"a port that is taken", "--port ", Options{Programs: programs, Host: "127.0.0.1", Port: port}},
		{"no port", "--port: expected", Options{Programs: programs, Host: "127.0.0.1", Port: 70000}},
		{"no network yet", "--address: this machine has none but loopback's", Options{Programs: programs, Port: 1}},
		{"no address", `--address "a_b:1": expected an address or a name`, Options{Programs: programs, Host: "a_b:1", Port: 1}},
		{"no audit policy", "--audit: expected a file", Options{Programs: programs, Host: "127.0.0.1", Port: 1, Audit: "none.yaml"}},
		{"no file of people", "--authentication: expected a file", Options{Programs: programs, Host: "127.0.0.1", Port: 1, Authentication: "none.yaml"}},
		{"a folder below a file", "--dir ", Options{Programs: programs, Host: "127.0.0.1", Port: 1, Dir: filepath.Join(programs, "etcd", "hub")}},
		{"a folder that cannot be written", "--dir: expected a folder that can be written: open " + unwritable,
			Options{Programs: programs, Host: "127.0.0.1", Port: 1, Dir: unwritable}},
	} {
		t.Run(row.name, func(t *testing.T) {
			above := t.TempDir()
			if row.o.Log = slog.New(slog.DiscardHandler); row.o.Dir == "" {
				row.o.Dir = filepath.Join(above, "hub")
			}
			h, err := Start(t.Context(), row.o)
			if err == nil {
				t.Fatal("it runs", h.End())
			}
			if !strings.HasPrefix(err.Error(), row.says) {
				t.Errorf("found %v, expected %s", err, row.says)
			}
			if made, err := os.ReadDir(above); err != nil || len(made) > 0 {
				t.Errorf("%v is left, %v", made, err)
			}
		})
	}
}

// A hub whose machine has a clock that is years off says so, and does not wait for an API server that nobody trusts.
func TestTimely(t *testing.T) {
	dir := t.TempDir()
	a, err := ensureAuthority(dir, "hub")
	if err != nil {
		t.Fatal(err)
	}
	for years, says := range map[int]string{0: "", 1: "", -1: "", -11: "expected the clock of this machine to be right, found ",
		11: "expected the clock of this machine to be right, found "} {
		err = timely("hub.crt", a.Cert, time.Now().AddDate(years, 0, 0))
		if (err != nil) != (says != "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%d years off: %v, expected %q", years, err, says)
		}
	}
}
