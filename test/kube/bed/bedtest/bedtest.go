// Package bedtest starts a Kubernetes for the tests of a package.
package bedtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"isolane.dev/isolane/test/kube"
	"isolane.dev/isolane/test/kube/bed"
)

// Need skips the test, with the reason, if this machine cannot run a bed.
func Need(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("skipped: needs root")
	}
	if _, err := kube.Programs(); err != nil {
		tb.Skip("skipped: ", err)
	}
}

// Start starts a bed for a test, and ends it with the test. If the test fails, the logs of the bed are kept.
func Start(tb testing.TB, o bed.Options) *bed.Bed {
	tb.Helper()
	b := Begin(tb, o)
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Log("the logs of the bed are in ", b.KeepLogs())
		}
		if err := b.Close(); err != nil {
			tb.Error(err)
		}
	})
	return b
}

// Begin starts a bed that is not ended with the test.
func Begin(tb testing.TB, o bed.Options) *bed.Bed {
	tb.Helper()
	Need(tb)
	if o.Program == "" {
		o.Program = Program(tb)
	}
	o.Log = tb.Output()
	o.Join = os.Getenv("ISOLANE_KUBE_JOIN") // in a machine of the lab
	o.Systemd = Systemd()
	b, err := bed.Start(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// Systemd reports whether nodes use systemd as their cgroup driver, which $ISOLANE_KUBE_SYSTEMD sets.
func Systemd() bool { return os.Getenv("ISOLANE_KUBE_SYSTEMD") != "" }

// Program builds kubebed, or takes it from the folder $ISOLANE_KUBE_PROGRAMS on a machine without Go.
func Program(tb testing.TB) string {
	tb.Helper()
	if built := os.Getenv("ISOLANE_KUBE_PROGRAMS"); built != "" {
		return filepath.Join(built, "kubebed")
	}
	program := filepath.Join(tb.TempDir(), "kubebed")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", program,
		"isolane.dev/isolane/test/kube/cmd/kubebed")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("go build kubebed: %v: %s", err, out)
	}
	return program
}
