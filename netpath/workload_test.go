package netpath_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"testing/fstest"
	"time"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/bridge"
	"isolane.dev/isolane/netpath/express"
	"isolane.dev/isolane/netpath/macvlan"
	"isolane.dev/isolane/netpath/ovs"
)

// A path leads into the namespace of a process that ran before, as attach has it, in both directions; nothing is left
// there after undo.
func TestRunningWorkload(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	for _, p := range []measured{bridge.Path{}, macvlan.Path{}, express.Path{}, ovs.Path{}} {
		t.Run(p.Name(), func(t *testing.T) {
			need(t, p)
			runs := exec.CommandContext(t.Context(), "unshare", "-n", "sleep", "1000")
			if err := runs.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = runs.Process.Kill()
				_ = runs.Wait()
			}()
			of := "/proc/" + strconv.Itoa(runs.Process.Pid) + "/ns/net"
			for begun := time.Now(); time.Since(begun) < 10*time.Second; <-time.After(10 * time.Millisecond) {
				own, _ := os.Readlink("/proc/self/ns/net")
				if now, _ := os.Readlink(of); now != own && now != "" {
					break
				}
			}
			wire := testWire()
			wire.Checksums = p.Name() == "ovs"
			n := lane.Network{Path: p.Name(), Device: wire.Uplink}
			for _, a := range prefixes(addressesOf(2)) {
				n.Addresses = append(n.Addresses, lane.Address{Prefix: a})
			}
			l := netpath.Of(fstest.MapFS{}, "test-app", n)
			workload, err := netdev.OfProcess(host.Live(), runs.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			l.Workload = workload
			j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", ops())
			if err != nil {
				t.Fatal(err)
			}
			steps, err := wire.Steps(p.WireGRO())
			if err != nil {
				t.Fatal(err)
			}
			more, err := p.Steps([]netpath.Lane{l})
			steps = append(steps, more...)
			if err == nil {
				_, err = j.Apply(t.Context(), steps)
			}
			if err != nil {
				t.Error(err)
			}
			for i, to := range addressesOf(2) {
				echo(t, wire.Netns, l.Netns(), "udp", to)
				echo(t, wire.Netns, l.Netns(), "tcp", to)
				echo(t, l.Netns(), wire.Netns, "tcp", addressesOf(1)[i])
			}
			if missing, merr := j.Missing(t.Context(), steps); merr != nil || len(missing) > 0 {
				t.Errorf("not in force: %v, %v", missing, merr)
			}
			if err := errors.Join(j.Undo(context.Background()), j.Close()); err != nil {
				t.Error(err)
			}
			within := exec.CommandContext(t.Context(), "nsenter", "--net="+of, "ls", "/proc/self/net/dev_snmp6")
			if left, lerr := within.Output(); lerr != nil || string(left) != "lo\n" {
				t.Errorf("in its namespace are %s, %v", left, lerr)
			}
		})
	}
}
