package bed

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"isolane.dev/isolane/test/kube"
)

// A control plane for nodes in a virtual machine has no node, but the device for the machine's card and what
// nodes need to join it, and runs kubectl for them.
func TestMachine(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root")
	}
	if _, err := kube.Programs(); err != nil {
		t.Skip("skipped: ", err)
	}
	b, err := Start(t.Context(), Options{Machine: true, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if cerr := b.Close(); cerr != nil {
			t.Error(cerr)
		}
	}()
	if err = b.Run(exec.Command("grep", Tap+":", "/proc/self/net/dev")); err != nil {
		t.Errorf("device %s: %v", Tap, err)
	}
	joined := &Bed{number: b.number, options: Options{Join: filepath.Join(b.Dir, "pki")}, client: b.client}
	if number, werr := joined.wanted(); werr != nil || number != b.number {
		t.Errorf("the number to join by is %d, %v; expected %d", number, werr, b.number)
	}
	dir := t.TempDir()
	a, err := readAuthority(joined.options.Join, dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = os.Stat(filepath.Join(dir, "ca.crt")); err != nil || !a.cert.IsCA {
		t.Errorf("the authority: %v, CA %t", err, a.cert.IsCA)
	}
	out, err := joined.Kubectl(t.Context(), "", "get", "--raw", "/readyz")
	if err != nil || out != "ok" {
		t.Errorf("kubectl by the control plane: %q, %v", out, err)
	}
	_, err = joined.Kubectl(t.Context(), "kind: Nothing", "apply", "-f", "-")
	if err == nil || !strings.Contains(err.Error(), "kubectl apply -f -") {
		t.Errorf("what kubectl refuses: %v", err)
	}
	if err = joined.leave(t.Context()); err != nil {
		t.Error(err)
	}
}
