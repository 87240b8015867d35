package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"isolane.dev/isolane/lanes"
)

// What a command cannot take is one line, with its name or flag and what was expected, and nothing beside it.
func TestFlagsRefused(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		at := filepath.Join(dir, name)
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return at
	}
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	key := file("key", identity.String())
	err = written(file("sealed", ""), func(w io.Writer) error {
		sealed, serr := age.Encrypt(w, identity.Recipient())
		if serr == nil {
			serr = sealed.Close()
		}
		return serr
	})
	if err != nil {
		t.Fatal(err)
	}
	sealed := filepath.Join(dir, "sealed")
	for _, row := range []struct {
		args []string
		says string
	}{
		{[]string{"statsu"}, "statsu: expected a command: isolane-hub --help lists them"},
		{[]string{"up", "--prot", "1"}, "up: flag provided but not defined: -prot: isolane-hub up --help says what it takes"},
		{[]string{"up", "--port", "x"}, `up: invalid value "x" for flag -port: `},
		{[]string{"up", "--anew", "soon"}, `up: invalid value "soon" for flag -anew: `},
		{[]string{"up", "--site", "a b"}, `--site "a b": a lowercase`},
		{[]string{"up", "now"}, `up: unexpected argument "now"`},
		{[]string{"agent", "--users", "9"}, `agent: invalid value "9" for flag -users: `},
		{[]string{"join"}, "join: expected https://HUB:PORT"},
		{[]string{"join", "https://127.0.0.1:1", "--token", "x"}, "--token: expected what isolane-hub token has printed"},
		{[]string{"hold", "x"}, "hold: expected for how long, as 2h or 30m, or 0"},
		{[]string{"token", "default", "--dir", dir}, "--dir: expected the folder of a hub"},
		{[]string{"restore", sealed, "--identity", key, "--dir", "/proc/none/hub"}, sealed + ": --dir /proc/none/hub: expected "},
		{[]string{"restore", sealed, "--identity", key, "--dir", filepath.Join(dir, "hub")}, sealed + ": expected a whole file"},
	} {
		t.Run(strings.Join(row.args[:min(2, len(row.args))], " "), func(t *testing.T) {
			told, stderr := file("told", ""), os.Stderr
			var oerr error
			if os.Stderr, oerr = os.OpenFile(told, os.O_WRONLY, 0); oerr != nil {
				t.Fatal(oerr)
			}
			rerr := run(t.Context(), lanes.Options{}, row.args)
			os.Stderr = stderr
			if rerr == nil || !strings.HasPrefix(rerr.Error(), row.says) || strings.Contains(rerr.Error(), "\n") {
				t.Errorf("found %v, expected %s", rerr, row.says)
			}
			if beside, berr := os.ReadFile(told); berr != nil || len(beside) > 0 {
				t.Errorf("found %s beside it, %v", beside, berr)
			}
		})
	}
	err = written("/proc/b.age", func(io.Writer) error { return nil })
	if err == nil || !strings.HasPrefix(err.Error(), "/proc/b.age: expected a file in a folder that can be written") ||
		strings.Contains(err.Error(), ".backup-") {
		t.Errorf("a file in /proc: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 3 {
		t.Errorf("%v, %v: expected what was here and no more", left, err)
	}
}
