package netpath_test

import (
	"context"
	"encoding/hex"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/bridge"
	"isolane.dev/isolane/netpath/express"
	"isolane.dev/isolane/netpath/macvlan"
	"isolane.dev/isolane/netpath/sriov"
)

// A lane is held to its rate also where a packet socket goes round the queue of its device, as CAP_NET_RAW lets it. What
// is dropped is counted; who sends by TCP meets the queue only.
func TestRate(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.BPF)
	const rate, megabytes = 20e6, 40
	for _, p := range []measured{bridge.Path{}, bridge.Path{GRO: true}, express.Path{}} {
		t.Run(p.Name(), func(t *testing.T) {
			j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", ops())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if uerr := errors.Join(j.Undo(context.Background()), j.Close()); uerr != nil {
					t.Error(uerr)
				}
			})
			wire := testWire()
			network := lane.Network{Path: p.Name(), Device: wire.Uplink, Rate: rate}
			for _, a := range prefixes(addressesOf(2)) {
				network.Addresses = append(network.Addresses, lane.Address{Prefix: a})
			}
			l := netpath.Of(fstest.MapFS{}, "test-app", network)
			steps, err := wire.Steps(p.WireGRO())
			if err != nil {
				t.Fatal(err)
			}
			more, err := p.Steps([]netpath.Lane{l})
			if err != nil {
				t.Fatal(err)
			}
			if refused, aerr := j.Apply(t.Context(), append(steps, more...)); aerr != nil || len(refused) > 0 {
				t.Fatal(refused, aerr)
			}
			stream(t, l.Netns(), wire.Netns, addressesOf(1)[0])
			if now := traffic(t, l); now.Refused > now.Sent/20 {
				t.Errorf("frames of TCP were dropped behind its queue: %+v", now)
			}

			outside, inside := at(t, wire.Netns, netpath.Device), at(t, l.Netns(), netpath.Device)
			if err = unix.SetsockoptInt(inside.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
				t.Fatal(err)
			}
			frame, err := hex.DecodeString(outside.mac + inside.mac + ipv4(own4, "0000", 1400) + strings.Repeat("00", len(mark)+8))
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				name  string
				frame []byte
				times int
			}{
				{"frames", frame, megabytes << 20 / len(frame)},
				{"segments", segments(t, outside.mac+inside.mac), 3000},
			} {
				if c.name == "segments" {
					if err = unix.SetsockoptInt(inside.fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
						t.Fatal(err)
					}
				}
				refused := traffic(t, l).Refused
				before, begin := bytesAt(t, wire.Netns), time.Now()
				for range c.times {
					if _, err = unix.Write(inside.fd, c.frame); err != nil && !errors.Is(err, unix.ENOBUFS) {
						t.Fatal(err)
					}
				}
				sent := bytesAt(t, wire.Netns) - before
				if most := rate / 8 * (1.5*time.Since(begin).Seconds() + 1); sent > uint64(most) {
					t.Errorf("%s: %d bytes came, expected at most %.0f", c.name, sent, most)
				}
				if traffic(t, l).Refused == refused {
					t.Errorf("%s: what was dropped is not counted", c.name)
				}
			}
		})
	}
}

// Who declares a rate learns where the workload can send more.
func TestRateReason(t *testing.T) {
	paths := []netpath.Path{bridge.Path{}, bridge.Path{GRO: true}, macvlan.Path{}, express.Path{}, sriov.Path{}}
	for _, p := range paths {
		reason := netpath.RateReason(paths, lane.Network{Path: p.Name(), Rate: 8e6})
		if (reason != "") != (p.Name() == "macvlan") || reason != "" && !netpath.IsReason(reason) {
			t.Errorf("%s: %q", p.Name(), reason)
		}
		if reason = netpath.RateReason(paths, lane.Network{Path: p.Name()}); reason != "" {
			t.Errorf("%s without a rate: %q", p.Name(), reason)
		}
	}
}

// segments are a frame of TCP that is cut into two hundred with little in them, behind what packet sockets want before
// it (struct virtio_net_hdr).
func segments(t *testing.T, addresses string) []byte {
	t.Helper()
	const payload = 1600
	frame, err := hex.DecodeString("01" + "01" + "3600" + "0800" + "2200" + "1000" + addresses + "0800" +
		"4500" + "0668" + "00010000" + "4006" + "da67" + own4 + wire4 + "000700070000000000000000" + "5010ffff" + "00000000" +
		strings.Repeat("00", payload))
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

func traffic(t *testing.T, l netpath.Lane) netpath.Traffic {
	t.Helper()
	now, err := netpath.TrafficOf(t.Context(), nil, l)
	if err != nil || now == nil {
		t.Fatal(now, err)
	}
	return *now
}

// bytesAt is how many have come to the device of a namespace.
func bytesAt(t *testing.T, netns string) uint64 {
	t.Helper()
	h, l, err := netdev.Find(netns, netpath.Device)
	if err != nil || l == nil {
		t.Fatal(netns, err)
	}
	h.Close()
	return l.Attrs().Statistics.RxBytes
}
