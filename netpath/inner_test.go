package netpath_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/sriov"
)

// A lane's inner tag is on a device in its namespace, on that of its function: here of a veth, whose other end stands
// for the wire behind the card.
func TestInnerTag(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Program("ip"))
	if err := netpath.LacksTags(os.DirFS("/")); err != nil {
		t.Skip("skipped: ", err)
	}
	l := netpath.Of(fstest.MapFS{}, "test-inner", lane.Network{Path: "sriov", Device: "eth1", MTU: 1400, VLAN: lane.VLAN{Outer: 100, Inner: 7},
		Addresses: []lane.Address{{Prefix: netip.MustParsePrefix("198.18.7.2/24")}}})
	const below = "vf0"
	own, err := netdev.LinkStep("isl-test-inner", netdev.Link{Type: netdev.Veth,
		Peer: &netdev.Peer{Netns: l.Netns(), Name: below, MAC: l.MAC, MTU: l.MTU}})
	if err != nil {
		t.Fatal(err)
	}
	l.Functions = netpath.PlacedFunctions{Card: "0000:31:00.0", Numbers: []int{3}}
	steps, err := sriov.Path{}.Steps([]netpath.Lane{l})
	if err != nil || len(steps) != 3 || steps[1].Kind != "vf" || !strings.Contains(steps[1].After, `"name":"`+below+`"`) {
		t.Fatalf("%v, %v", steps, err)
	}
	steps[1] = own
	j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", ops())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err = errors.Join(j.Undo(context.Background()), j.Close()); err != nil {
			t.Error(err)
		}
	}()
	ip := func(args string) string {
		out, ierr := exec.CommandContext(t.Context(), "ip", strings.Fields("-n "+l.Netns()+" "+args)...).CombinedOutput()
		return fmt.Sprint(string(out), ierr)
	}
	for _, lost := range []string{"eth0", below} {
		if _, err = j.Apply(t.Context(), steps); err != nil {
			t.Fatal(err)
		}
		got := ip("-d -o link show eth0") + ip("-o addr show eth0")
		for _, want := range []string{"eth0@" + below, "mtu 1400 ", "link/ether " + l.MAC, "vlan protocol 802.1Q id 7 ", "inet 198.18.7.2/24"} {
			if !strings.Contains(got, want) {
				t.Errorf("expected %q: %s", want, got)
			}
		}
		ip("link del " + lost)
		for i, s := range steps[1:] {
			if inForce, _, ferr := j.InForce(t.Context(), s); ferr != nil || inForce != (lost == "eth0" && i == 0) {
				t.Errorf("%s is lost, %s is in force: %v, %v", lost, s.Target, inForce, ferr)
			}
		}
	}
	if _, err = j.Apply(t.Context(), steps); err != nil {
		t.Error(err)
	}
}
