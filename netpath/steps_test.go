package netpath_test

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/bridge"
	"isolane.dev/isolane/netpath/express"
	"isolane.dev/isolane/netpath/macvlan"
	"isolane.dev/isolane/netpath/sriov"
)

// BenchmarkSteps times what a path itself does for a lane, beside another one that is in force: its steps recorded, done
// and read back, and taken back. The uplink is a veth, or for sriov the card ISOLANE_TEST_CARD with its functions there.
func BenchmarkSteps(b *testing.B) {
	hosttest.Need(b, hosttest.Root, hosttest.BPF)
	for _, p := range []netpath.Path{bridge.Path{}, bridge.Path{GRO: true}, macvlan.Path{}, express.Path{}, sriov.Path{}} {
		b.Run(p.Name(), func(b *testing.B) {
			uplink, card := "islt-upl", ""
			if p.Name() == "sriov" {
				uplink = os.Getenv("ISOLANE_TEST_CARD")
				address, err := filepath.EvalSymlinks("/sys/class/net/" + uplink + "/device")
				if uplink == "" || err != nil {
					b.Skip("skipped: needs a card with two virtual functions (ISOLANE_TEST_CARD), as in the lab")
				}
				card = filepath.Base(address)
			} else {
				run := func(args ...string) {
					if out, err := exec.CommandContext(context.Background(), "ip", args...).CombinedOutput(); err != nil {
						b.Fatalf("%v: %s", err, out)
					}
				}
				run("link", "add", uplink, "up", "type", "veth", "peer", "name", "islt-wire")
				defer run("link", "del", uplink)
				run("link", "set", "islt-wire", "up")
			}
			steps := make([][]journal.Step, 2)
			for i, name := range []string{"islt-a", "islt-b"} {
				l := netpath.Of(fstest.MapFS{}, name, lane.Network{Path: p.Name(), Device: uplink, Addresses: []lane.Address{
					{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 9, byte(1 + i)}), 24)}}})
				l.Functions = netpath.PlacedFunctions{Card: card, Numbers: []int{i}, Pool: 2}
				var err error
				if steps[i], err = p.Steps([]netpath.Lane{l}); err != nil {
					b.Fatal(err)
				}
			}
			j, err := journal.Open(filepath.Join(b.TempDir(), "run"), "test", ops())
			if err != nil {
				b.Fatal(err)
			}
			defer func() {
				if err = j.Undo(context.Background()); err != nil {
					b.Error(err)
				}
				_ = j.Close()
			}()
			if _, err = j.Apply(b.Context(), steps[0]); err != nil {
				b.Fatal(err)
			}
			own := func(s journal.Step) bool {
				return !slices.ContainsFunc(steps[0], func(o journal.Step) bool { return o.Kind == s.Kind && o.Target == s.Target })
			}
			var put, back []time.Duration
			for b.Loop() {
				begun := time.Now()
				if _, err = j.Apply(b.Context(), steps[1]); err != nil {
					b.Fatal(err)
				}
				put, begun = append(put, time.Since(begun)), time.Now()
				if _, err = j.UndoWhere(b.Context(), own); err != nil {
					b.Fatal(err)
				}
				back = append(back, time.Since(begun))
			}
			for name, all := range map[string][]time.Duration{"put": put, "back": back} {
				slices.Sort(all)
				b.ReportMetric(all[len(all)/2].Seconds()*1000, name+"-ms")
				b.ReportMetric(all[len(all)-1].Seconds()*1000, name+"-longest-ms")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
