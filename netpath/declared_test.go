package netpath_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
)

// A router on the segment gives a lane with addresses no further one, and no route; what it gave before goes.
func TestRouterAdvertisements(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	alone(t)
	l, ends := segment(t, bridge.Path{})
	inside := l.Inside()
	differs := func() []string {
		t.Helper()
		what, err := inside.Differs()
		if err != nil {
			t.Fatal(err)
		}
		return what
	}
	const advertised, accepts = "address 2001:db8:77:", "eth0 accepts router advertisements"
	given := func(what string) bool { return strings.HasPrefix(what, advertised) }
	advertise(t, ends[testWire().Netns])
	senders(t, ends[l.Netns()], time.Now().Add(500*time.Millisecond)) // by then it has come
	if what := differs(); len(what) > 0 {
		t.Errorf("differs: %v", what)
	}
	in(t, l.Netns(), func() error {
		return os.WriteFile("/proc/sys/net/ipv6/conf/eth0/accept_ra", []byte("1"), 0)
	})
	advertise(t, ends[testWire().Netns])
	for end := time.Now().Add(5 * time.Second); !slices.ContainsFunc(differs(), given) && time.Now().Before(end); {
		<-time.After(10 * time.Millisecond)
	}
	if what := differs(); !slices.ContainsFunc(what, given) || !slices.Contains(what, accepts) {
		t.Errorf("somebody let it accept them: differs %v", what)
	}
	if err := inside.Configure(); err != nil {
		t.Error(err)
	}
	if what := differs(); len(what) > 0 {
		t.Errorf("put back, differs: %v", what)
	}
	out, err := exec.CommandContext(t.Context(), "ip", "-n", l.Netns(), "-6", "route", "show", "default").CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("default routes are left: %s, %v", out, err)
	}
}

// advertise sends a router advertisement with a prefix by a socket of everything (RFC 4861, section 4.2).
func advertise(t *testing.T, fd int) {
	t.Helper()
	mac, err := net.ParseMAC(testWire().MAC)
	if err != nil {
		t.Fatal(err)
	}
	to := netip.MustParseAddr("ff02::1").As16()
	from := netpath.LinkLocal(mac).As16()
	message := slices.Concat([]byte{134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0},
		[]byte{3, 4, 64, 0xc0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}, netip.MustParseAddr("2001:db8:77::").AsSlice())
	var sum uint32
	for b := slices.Concat(from[:], to[:], []byte{0, 0, 0, byte(len(message)), 0, 0, 0, 58}, message); len(b) > 0; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(message[2:], ^uint16(sum+sum>>16))
	frame := bytes.Join([][]byte{{0x33, 0x33, 0, 0, 0, 1}, mac, {0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(len(message)), 58, 255}, from[:], to[:],
		message}, nil)
	in(t, testWire().Netns, func() error {
		d, err := net.InterfaceByName(netpath.Device)
		if err != nil {
			return err
		}
		return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: d.Index})
	})
}

// A lane is in force when the bridge lets its frames pass, which one with the spanning tree protocol does not at
// first; a port that is kept back later is told, and one whose bridge is down waits, which no other change does.
func TestPortForwards(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	const bridged = "isl-test-b"
	run := func(command string) {
		t.Helper()
		args := strings.Fields(command)
		out, err := exec.CommandContext(context.WithoutCancel(t.Context()), args[0], args[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	run("ip link add " + bridged + " up type bridge stp_state 1 forward_delay 200")
	defer run("ip link del " + bridged)
	l := netpath.Of(fstest.MapFS{}, "test-app", lane.Network{Path: "bridge", Device: bridged})
	steps, err := bridge.Path{}.Steps([]netpath.Lane{l})
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", ops())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if uerr := errors.Join(j.Undo(context.Background()), j.Close()); uerr != nil {
			t.Error(uerr)
		}
	}()
	if _, err = j.Apply(t.Context(), steps); err != nil {
		t.Fatal(err)
	}
	port := netpath.Port(l.Name)
	is := func() string {
		text, _ := os.ReadFile("/sys/class/net/" + port + "/brport/state")
		return strings.TrimSpace(string(text))
	}
	if is() != "3" {
		t.Errorf("in force, and the port is in state %q", is())
	}
	run("ip link set " + bridged + " type bridge forward_delay 3000")
	run("ip -n " + l.Netns() + " link set eth0 down")
	for end := time.Now().Add(time.Minute); is() != "0" && time.Now().Before(end); { // the bridge is told by a work item
		<-time.After(10 * time.Millisecond)
	}
	run("ip -n " + l.Netns() + " link set eth0 up")
	i := slices.IndexFunc(steps, func(s journal.Step) bool { return s.Kind == netdev.KindLink && s.Target == port })
	listening, found, want := steps[i], "", bridged+" does not let "+port+" forward"
	listening.Before = listening.After
	for end := time.Now().Add(time.Minute); found != want && time.Now().Before(end); {
		<-time.After(10 * time.Millisecond)
		_, found = ops()[netdev.KindLink].(interface {
			DescribeDrift(journal.Step) (string, string)
		}).DescribeDrift(listening)
	}
	if found != want {
		t.Errorf("the port listens again, found: %q", found)
	}
	run("ip link set " + bridged + " down")
	begun := time.Now()
	_, err = j.Apply(t.Context(), steps)
	if w := j.Waiting(); err != nil || len(w) != 1 || w[0].Err.Error() != bridged+" is down: ip link set "+bridged+" up" {
		t.Errorf("the bridge is down, waiting: %+v, %v", w, err)
	}
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("the bridge is down, and that took %s", took)
	}
	run("ip link set " + bridged + " type bridge stp_state 0")
	run("ip link set " + bridged + " up")
	_, err = j.Apply(t.Context(), steps)
	if inForce, _, ierr := j.InForce(t.Context(), steps[i]); !inForce || err != nil || ierr != nil {
		t.Errorf("the bridge is up again: in force is %v, %v, %v", inForce, err, ierr)
	}
}
