package main

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cli"
	"isolane.dev/isolane/lanes"
)

// What a command does not accept gives one line, with its name or flag and what was expected, and nothing
// else.
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
	programs := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if err := os.WriteFile(filepath.Join(programs, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	identity, err := age.GenerateX25519Identity()
	another, oerr := age.GenerateX25519Identity()
	if err = errors.Join(err, oerr); err != nil {
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
		{[]string{"statsu"}, `unknown command "statsu", did you mean status?`},
		{[]string{"up", "--prot", "1"}, "unknown flag: --prot"},
		{[]string{"up", "--port", "x"}, `--port "x": `},
		{[]string{"up", "--anew", "soon"}, `--anew "soon": `},
		{[]string{"up", "--answer", "0s"}, "--answer: expected a time above 0, found 0s"},
		{[]string{"up", "--site", "a b"}, `--site "a b": a lowercase`},
		{[]string{"up", "--programs", dir}, "--programs: expected a folder with etcd and kube-apiserver, as the package isolane-hub-programs "},
		{[]string{"simulate", "3"}, `--snapshot "": expected an archive of isolane host snapshot: `},
		{[]string{"up", "--kubeconfig", dir + "/none"}, "--kubeconfig " + dir + "/none: "},
		{[]string{"up", "now"}, `up: "now": expected no argument`},
		{[]string{"agent", "--users", "9"}, `--users "9": expected users as FIRST-LAST`},
		{[]string{"join", "http://127.0.0.1:1", "--token", "x"}, `hub "http://127.0.0.1:1": expected https://ADDRESS:PORT`},
		{[]string{"join"}, "expected 1 argument, found 0"},
		{[]string{"join", "https://127.0.0.1:1", "--token", "x"}, "--token: expected what isolane-hub token has printed, ID.SECRET.DIGEST with 6, 16 and 43 characters, found 1 in all"},
		{[]string{"hold", "x"}, "expected for how long, as 2h or 30m, or 0"},
		{[]string{"token", "default", "--dir", dir}, "--dir: expected the folder of a hub"},
		{[]string{"token", "a b"}, `site "a b": a lowercase`},
		{[]string{"up", "--programs", programs, "--address", "a/b"}, `--address "a/b": expected an address or a name`},
		{[]string{"why", "a/b/c"}, `"a/b/c": expected an App, as NAMESPACE/NAME`},
		{[]string{"backup", "b", "--recipient", "me"}, "--recipient: expected a public key of age"},
		{[]string{"restore", sealed, "--identity", dir + "/none"}, "--identity: open "},
	} {
		t.Run(strings.Join(row.args[:min(2, len(row.args))], " "), func(t *testing.T) {
			if code, told := fails(t, row.args); code != cli.ExitUsage || !strings.HasPrefix(told, "isolane-hub: "+row.says) {
				t.Errorf("exit code %d, %s; expected %s", code, told, row.says)
			}
		})
	}
	for where, says := range map[string]string{"/proc/none/hub": ": --dir /proc/none/hub: expected ",
		filepath.Join(dir, "hub"): ": expected a whole file"} {
		code, told := fails(t, []string{"restore", sealed, "--identity", key, "--dir", where})
		if code != cli.ExitFailed || !strings.HasPrefix(told, "isolane-hub: "+sealed+says) {
			t.Errorf("restore to %s: exit code %d, %s; expected %s", where, code, told, says)
		}
	}
	if code, told := fails(t, []string{"restore", key, "--identity", key, "--dir", filepath.Join(dir, "hub")}); code != cli.ExitFailed ||
		!strings.HasPrefix(told, "isolane-hub: "+key+": expected a file of isolane-hub backup or invite: ") {
		t.Errorf("restore of no backup: exit code %d, %s", code, told)
	}
	if code, told := fails(t, []string{"restore", sealed, "--identity", file("other", another.String()), "--dir", filepath.Join(dir, "hub")}); code != cli.ExitFailed ||
		!strings.HasPrefix(told, "isolane-hub: --identity "+dir+"/other: expected that for whose recipient ") {
		t.Errorf("restore of a backup for another: exit code %d, %s", code, told)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err = unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	err = written(pipe, func(io.Writer) error { return nil })
	if is, serr := os.Stat(pipe); err == nil || serr != nil || is.Mode().IsRegular() || !strings.Contains(err.Error(), ": expected a file, or none yet") {
		t.Errorf("a pipe: %v, %v", err, serr)
	}
	err = written("/proc/b.age", func(io.Writer) error { return nil })
	if err == nil || !strings.HasPrefix(err.Error(), "/proc/b.age: expected a file in a folder that can be written") ||
		strings.Contains(err.Error(), ".backup-") {
		t.Errorf("a file in /proc: %v", err)
	}
	full := filepath.Join(t.TempDir(), "b.age")
	err = written(full, func(io.Writer) error {
		return fmt.Errorf("sealed: %w", &fs.PathError{Op: "write", Path: full + ".backup-1", Err: unix.ENOSPC})
	})
	if err == nil || err.Error() != full+": expected room for it on its disk: no space left on device" {
		t.Errorf("a full disk: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 3 {
		t.Errorf("%v, %v: expected what was here and no more", left, err)
	}
}

// kubectl gets the hub that somebody names in any way; else that of this machine, if there is one.
func TestToHub(t *testing.T) {
	here := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(here, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const refused = "KUBECONFIG: expected how to reach a hub, as isolane-hub up prints it: stat "
	for _, row := range []struct{ config, args, says string }{
		{here, "get hosts", ""},
		{"", "get hosts", refused + "/none/own: no such file or directory"},
		{"/none/a:" + here, "get hosts", ""},
		{"/none/a", "get hosts", refused + "/none/a: no such file or directory"},
		{"/none/a", "get hosts --kubeconfig /none/b", ""},
		{"/none/a", "get hosts --kubeconfig=/none/b", ""},
		{"", "get --help", ""},
	} {
		t.Setenv("KUBECONFIG", row.config)
		err := toHub("/none/own", strings.Fields(row.args))
		if row.says == "" && err != nil || row.says != "" && (err == nil || !strings.HasPrefix(err.Error(), row.says)) {
			t.Errorf("KUBECONFIG=%s %s: %v, expected %q", row.config, row.args, err, row.says)
		}
		if now := os.Getenv("KUBECONFIG"); now != row.config {
			t.Errorf("KUBECONFIG=%s, found %s", row.config, now)
		}
	}
	t.Setenv("KUBECONFIG", "")
	if err := toHub(here, []string{"get"}); err != nil || os.Getenv("KUBECONFIG") != here {
		t.Errorf("that of this machine: %v, KUBECONFIG=%s", err, os.Getenv("KUBECONFIG"))
	}
}

// A host is named like its machine, in the letters that a hub accepts.
func TestHostName(t *testing.T) {
	if name := hostName("Edge-7.site.example"); name != "edge-7" {
		t.Errorf("found %q", name)
	}
}

// Without a running hub each command that asks one says so, and so does one that the hub does not let in. None claims
// that a right is missing.
func TestNoHubThere(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "a",
		"contexts": [{"name": "a", "context": {"cluster": "a"}}],
		"clusters": [{"name": "a", "cluster": {"server": "`+server.URL+`", "certificate-authority-data": "`+
		base64.StdEncoding.EncodeToString(authority)+`"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{"\nhint: the hub does not know who asks: ", "connection refused\nhint: no hub runs there: "} {
		for _, args := range [][]string{{"why", "web"}, {"findings"}, {"token", "default"}} {
			root := command(lanes.Options{})
			root.SetArgs(append(args, "--kubeconfig", file))
			var out strings.Builder
			if code := cli.Print(&out, "isolane-hub", root.ExecuteContext(t.Context())); code != cli.ExitFailed ||
				!strings.Contains(out.String(), says) || strings.Contains(out.String(), "isolane:operator") {
				t.Errorf("%s: exit code %d, %s", args[0], code, out.String())
			}
		}
		server.Close()
	}
}

// fails runs a command that must fail, and returns its exit code and its output: at most one line and a hint.
func fails(t *testing.T, args []string) (code int, told string) {
	t.Helper()
	root := command(lanes.Options{})
	var out, beside strings.Builder
	root.SetArgs(args)
	root.SetOut(&beside)
	root.SetErr(&beside)
	if err := root.ExecuteContext(t.Context()); err != nil {
		code = cli.Print(&out, "isolane-hub", err)
	}
	first, more, _ := strings.Cut(out.String(), "\n")
	if beside.Len() > 0 || more != "" && !strings.HasPrefix(more, "hint: ") || strings.Count(more, "\n") > 1 {
		t.Errorf("%q: found %s%s beside a line", args, more, beside.String())
	}
	return code, first
}

// A hub whose clock was behind when it began gets new certificates when the clock is right, not half a year after that.
func TestUntilDue(t *testing.T) {
	began := time.Now()
	for jump, ends := range map[time.Duration]bool{time.Minute: false, -time.Hour: false, 200 * 24 * time.Hour: true} {
		ctx, cancel := context.WithCancel(t.Context())
		ticks, done := make(chan time.Time), make(chan struct{})
		go func() {
			untilDue(ctx, cancel, began.Add(180*24*time.Hour), ticks)
			close(done)
		}()
		ticks <- began.Add(jump)
		select {
		case ticks <- began: // it still looks
		case <-done:
		}
		if (ctx.Err() != nil) != ends {
			t.Errorf("the clock has moved by %s: ended: %t, expected %t", jump, !ends, ends)
		}
		cancel()
		<-done
	}
}
