package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/hub/up"
)

// If the hub's programs reject its options, the hub ends with one line that says what was expected.
func TestUpRefused(t *testing.T) {
	long(t)
	b := withoutHost(t)
	write := func(name, text string) string {
		t.Helper()
		if err := os.WriteFile(b.file(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return b.file(name)
	}
	policy := write("policy.yaml", "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Loud}]}")
	people := write("people.yaml", `{apiVersion: apiserver.config.k8s.io/v1, kind: AuthenticationConfiguration,
		jwt: [{issuer: {url: "http://plain", audiences: [hub]}}]}`)
	for _, row := range []struct {
		name, says string
		flags      []string
		wrap       []string // what starts it
		before     func(t *testing.T)
	}{
		{name: "audit", flags: []string{"--audit", policy}, says: "--audit " + policy + ": expected a policy"},
		{name: "authentication", flags: []string{"--authentication", people}, says: "--authentication " + people + ": expected"},
		{name: "disk", says: "expected room on its disk: etcd has ended 3 times: failed to create WAL: no space left",
			wrap: []string{"unshare", "-m", "sh", "-c", `mount -t tmpfs -o size=20m small "$0" && exec "$@"`, b.file("disk")},
			before: func(t *testing.T) {
				t.Helper()
				hosttest.Need(t, hosttest.Root)
			}},
		{name: "version", says: "expected a store that no later version has written", before: b.later},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := b.file(row.name)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if row.before != nil {
				row.before(t)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			args := slices.Concat(row.wrap, []string{b.binary, "up", "--dir", dir, "--programs", b.programs,
				"--address", "127.0.0.1", "--port", fmt.Sprint(b.port)}, row.flags)
			out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			if last := lines[len(lines)-1]; err == nil || ctx.Err() != nil || !strings.Contains(last, row.says) {
				t.Errorf("%v: %s\nexpected at its end %s", err, out, row.says)
			}
		})
	}
}

// later makes the store of folder "version" look as if a later etcd had written it.
func (b *bench) later(t *testing.T) {
	t.Helper()
	h, err := up.Start(t.Context(), up.Options{Dir: b.file("version"), Programs: b.programs, Host: "127.0.0.1",
		Port: b.port, Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		err = h.End()
	}
	if err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(filepath.Join(b.file("version"), "store/member/snap/db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err = db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("storageVersion"), []byte("99.0.0"))
	}); err != nil {
		t.Fatal(err)
	}
}
