package netpath_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/bridge"
	"isolane.dev/isolane/netpath/express"
	"isolane.dev/isolane/netpath/macvlan"
	"isolane.dev/isolane/netpath/ovs"
	"isolane.dev/isolane/netpath/sriov"
	"isolane.dev/isolane/netpath/vpp"
	"isolane.dev/isolane/test/vpptest"
)

func TestMain(m *testing.M) { hosttest.Main(m, vpptest.Be, put) }

// switchLanes is for more of them than a run of all tests has time for: go test ./netpath -run AtRandom -lanes 200.
var switchLanes = flag.Int("lanes", 20, "how many lanes at random by Open vSwitch, and by VPP")

// atOnce is for fewer of them where time is short.
var atOnce = flag.Int("at-once", 200, "how many lanes are in force at once, at most 220")

const putEnv = "ISOLANE_TEST_PUT"

// wanted are lanes by their names, in the directory of a journal.
type wanted struct {
	Dir       string
	Lanes     map[string]lane.Network
	Functions map[string]netpath.PlacedFunctions // of lanes that need some
}

// put is a program that puts lanes in force in place of those that are, and can be killed.
func put() (bool, error) {
	if os.Getenv(putEnv) == "" {
		return false, nil
	}
	var w wanted
	text, err := io.ReadAll(os.Stdin) // until it may begin
	if err = errors.Join(err, json.Unmarshal(text, &w)); err != nil {
		return true, err
	}
	_, err = w.reconcile(context.Background())
	return true, err
}

// reconcile puts the lanes in force, and returns what then is not.
func (w wanted) reconcile(ctx context.Context) (missing []journal.Step, err error) {
	var steps []journal.Step
	for _, p := range []netpath.Path{express.Path{}, macvlan.Path{}, bridge.Path{GRO: true}, bridge.Path{}, ovs.Path{},
		ovs.Path{DPDK: true}, sriov.Path{}, vpp.Path{}} {
		var lanes []netpath.Lane
		for name, n := range w.Lanes {
			if n.Path == p.Name() {
				l := netpath.Of(fstest.MapFS{}, name, n)
				l.Functions = w.Functions[name]
				lanes = append(lanes, l)
			}
		}
		slices.SortFunc(lanes, func(a, b netpath.Lane) int { return strings.Compare(a.Name, b.Name) })
		if len(lanes) == 0 {
			continue
		}
		more, serr := p.Steps(lanes)
		if serr != nil {
			return nil, serr
		}
		steps = append(steps, more...)
	}
	j, err := journal.OpenWait(ctx, w.Dir, "test", ops(), nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	if _, left, err := j.Reconcile(ctx, steps, false); err != nil || len(left) > 0 {
		return nil, fmt.Errorf("left alone: %v: %w", left, err)
	}
	return j.Missing(ctx, steps)
}

// killed has another process put the lanes in force, and kills it after that time; with a negative one somebody else
// does. It says whether it was killed. begins, which may be nil, is told its number before it begins.
func (w wanted) killed(t *testing.T, after time.Duration, begins func(pid int)) bool {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), putEnv+"=1")
	cmd.Stderr = &said
	begin, err := cmd.StdinPipe()
	if err = errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	if begins != nil {
		begins(cmd.Process.Pid)
	}
	_, err = begin.Write(text)
	if err = errors.Join(err, begin.Close()); err != nil {
		t.Fatal(err)
	}
	if after >= 0 {
		<-time.After(after)
		_ = cmd.Process.Kill() // it may have ended
	}
	if err = cmd.Wait(); err == nil {
		return false
	}
	if status, is := cmd.ProcessState.Sys().(syscall.WaitStatus); !is || status.Signal() != syscall.SIGKILL {
		t.Fatalf("%v: %s", err, said.String())
	}
	return true
}

// Two hundred lanes come and go at random on two uplinks, fewer by a switch, by programs that are killed at any moment: the next
// one puts its own lanes in force, and recover leaves the host as it was, and a switch.
func TestLanesAtRandomWithKills(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.BPF)
	for _, c := range []struct {
		name  string
		paths []string // of which each uplink has one at a time
		begin func(*testing.T) switched
	}{
		{"kernel", []string{"bridge", "bridge-gro", "macvlan", "express"}, func(*testing.T) switched { return switched{} }},
		{"ovs", []string{"ovs", "ovs", "ovs", "bridge"}, openVSwitch},
		{"vpp", []string{"vpp", "vpp", "vpp", "bridge"}, standInVPP},
	} {
		t.Run(c.name, func(t *testing.T) {
			most := 200
			if c.name != "kernel" {
				most = *switchLanes
			}
			atRandom(t, most, c.paths, c.begin(t))
		})
	}
}

// lanesAtRandom are up to six lanes on two uplinks, by one path on each.
func lanesAtRandom(r *rand.Rand, uplinks, paths []string) map[string]lane.Network {
	lanes, on := map[string]lane.Network{}, map[string]string{}
	for _, u := range uplinks {
		on[u] = paths[r.IntN(len(paths))]
	}
	for range r.IntN(7) {
		i := 1 + r.IntN(8)
		n := lane.Network{Device: uplinks[r.IntN(2)], MTU: []int{0, 1400}[r.IntN(2)]}
		n.Path = on[n.Device]
		if n.Path == "ovs" || n.Path == "vpp" { // which put tags on themselves
			n.VLAN = []lane.VLAN{{}, {Outer: 100}, {Outer: 200}, {Outer: 300, Inner: 7}, {Outer: 300, Inner: 8}}[r.IntN(5)]
		}
		if n.Path == "vpp" {
			n.VLAN.Inner = 0
		}
		if r.IntN(2) == 0 {
			n.Addresses = []lane.Address{{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 9, byte(i)}), 24)}}
		}
		lanes[fmt.Sprint("islt-", i)] = n
	}
	return lanes
}

func atRandom(t *testing.T, all int, paths []string, with switched) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	uplinks := []string{"islt-up1", "islt-up2"}
	for _, u := range uplinks {
		command(t, "ip", "link", "add", u, "type", "veth", "peer", "name", u+"w")
		defer command(t, "ip", "link", "del", u)
		command(t, "ip", "link", "set", u, "up")
	}
	defer func() {
		if _, _, err := journal.Recover(context.Background(), dir, ops()); err != nil {
			t.Error(err)
		}
	}()
	host := func() string {
		pinned, err := fs.Glob(os.DirFS("/sys/fs/bpf"), "isolane*")
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(command(t, "ip", "-d", "-o", "link"), command(t, "ip", "netns"), pinned, besides(t))
		if with.shown != nil {
			text += with.shown()
		}
		return text
	}
	before := host()
	seed := rand.Uint64()
	t.Log("seed ", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var lanes, kills, recovered int
	for lanes < all {
		w := wanted{dir, lanesAtRandom(r, uplinks, paths), nil}
		lanes += len(w.Lanes)
		most := 150 * time.Millisecond
		if with.tools != nil { // each of which takes a while
			most = time.Second
		}
		if w.killed(t, time.Duration(r.Int64N(int64(most))), nil) {
			kills++
		}
		if r.IntN(3) == 0 {
			recovered++
			if _, _, err := journal.Recover(t.Context(), dir, ops()); err != nil {
				t.Fatal(err)
			}
			if after := settled(before, host); after != before {
				t.Fatalf("after recover the host differs (-was +is):\n%s", cmp.Diff(before, after))
			}
			continue
		}
		missing, err := w.reconcile(t.Context())
		if err != nil || len(missing) > 0 {
			t.Fatalf("%v: not in force: %v: %v", w.Lanes, missing, err)
		}
		for name := range w.Lanes {
			if !strings.Contains(command(t, "ip", "-n", "isolane-"+name, "link"), netpath.Device+"@") {
				t.Fatalf("lane %s has no device", name)
			}
		}
		if is := strings.Count(command(t, "ip", "netns"), "isolane-islt-"); is != len(w.Lanes) {
			t.Fatalf("%d namespaces for %v", is, w.Lanes)
		}
	}
	t.Logf("%d lanes, %d programs killed, %d times recovered", lanes, kills, recovered)
}

// Two hundred lanes are in force at once by one path. Programs that put them in force, have others in place of some, and
// take all back are killed at any moment. Lanes that stay are reached all the while, from outside and by each other, and
// those that are to be there once a program has ended. The host is as before when all are gone.
func TestManyLanesWithKills(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.BPF)
	for _, p := range []measured{express.Path{}, bridge.Path{}, macvlan.Path{}} {
		t.Run(p.Name(), func(t *testing.T) { manyLanes(t, p, *atOnce) })
	}
}

// lanesOf are some lanes of those with these numbers, of which each always is the same.
func lanesOf(path string, numbers []int) map[string]lane.Network {
	lanes := map[string]lane.Network{}
	for _, i := range numbers {
		n := lane.Network{Path: path, Device: testWire().Uplink}
		for _, a := range prefixes(addressesOf(byte(i))) {
			n.Addresses = append(n.Addresses, lane.Address{Prefix: a})
		}
		lanes[fmt.Sprint("islt-", i)] = n
	}
	return lanes
}

func manyLanes(t *testing.T, p measured, most int) {
	t.Helper()
	if _, err := os.Stat("/dev/shm"); err == nil {
		t.Setenv("TMPDIR", "/dev/shm") // in memory, as a host's journal
	}
	wire := testWire()
	steps, err := wire.Steps(p.WireGRO())
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(filepath.Join(t.TempDir(), "wire"), "test", ops())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if uerr := errors.Join(j.Undo(context.Background()), j.Close()); uerr != nil {
			t.Error(uerr)
		}
	})
	if _, err = j.Apply(t.Context(), steps); err != nil {
		t.Fatal(err)
	}
	host := func() string {
		return fmt.Sprint(command(t, "ip", "-d", "-o", "link"), command(t, "ip", "netns"), besides(t))
	}
	before, dir := host(), filepath.Join(t.TempDir(), "run")
	defer func() {
		if _, _, rerr := journal.Recover(context.Background(), dir, ops()); rerr != nil {
			t.Error(rerr)
		}
	}()
	seed := rand.Uint64()
	t.Log("seed ", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	all := r.Perm(most + most/10) // of which those at the beginning are in force
	for i := range all {
		all[i] += 2
	}
	// reach looks whether some of these lanes are reached.
	reach := func(when string, numbers []int) {
		t.Helper()
		for n, at := range r.Perm(len(numbers))[:min(8, len(numbers))] {
			i, other := numbers[at], numbers[(at+1)%len(numbers)]
			for from, to := range map[string]int{wire.Netns: i, fmt.Sprint("isolane-islt-", i): 1, fmt.Sprint("isolane-islt-", other): i} {
				in(t, from, func() error {
					if a := addressesOf(byte(to))[n%2]; !reaches(netip.AddrPortFrom(a, 9), 10*time.Second) {
						t.Errorf("%s: %s does not reach %s", when, from, a)
					}
					return nil
				})
			}
		}
	}
	kills := 0
	// change has a program put other lanes in force that is killed at any moment, and then the test itself.
	change := func(when string, now, next []int, long time.Duration) time.Duration {
		t.Helper()
		w := wanted{dir, lanesOf(p.Name(), next), nil}
		if w.killed(t, time.Duration(r.Int64N(int64(long))), nil) {
			kills++
		}
		stay := slices.DeleteFunc(slices.Clone(now), func(i int) bool { return !slices.Contains(next, i) })
		reach(when+", killed", stay)
		begun := time.Now()
		missing, rerr := w.reconcile(t.Context())
		took := time.Since(begun)
		if rerr != nil || len(missing) > 0 {
			t.Fatalf("%s: not in force: %v: %v", when, missing, rerr)
		}
		if is := strings.Count(command(t, "ip", "netns"), "isolane-islt-"); is != len(next) {
			t.Errorf("%s: %d namespaces, expected %d", when, is, len(next))
		}
		reach(when, next)
		return took
	}
	began := time.Now()
	took := change("put in force", nil, all[:most], time.Second)
	t.Logf("put in force after %v, the rest in %v", time.Since(began), took)
	for range 3 {
		now := slices.Clone(all[:most])
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		took = change("changed", now, all[:most], took)
	}
	t.Logf("changed in %v", took)
	if (wanted{Dir: dir}).killed(t, took/2, nil) {
		kills++
	}
	if _, _, err = journal.Recover(t.Context(), dir, ops()); err != nil {
		t.Fatal(err)
	}
	if after := settled(before, host); after != before {
		t.Errorf("the host differs (-was +is):\n%s", cmp.Diff(before, after))
	}
	t.Logf("%d lanes at once, %d programs killed, %v", most, kills, time.Since(began))
}
