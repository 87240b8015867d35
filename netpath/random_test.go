package netpath_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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
)

func TestMain(m *testing.M) { hosttest.Main(m, put) }

const putEnv = "ISOLANE_TEST_PUT"

// wanted are lanes by their names, in the directory of a journal.
type wanted struct {
	Dir   string
	Lanes map[string]lane.Network
}

// put is a program that puts lanes in force in place of those that are, and can be killed.
func put() (bool, error) {
	text, is := os.LookupEnv(putEnv)
	if !is {
		return false, nil
	}
	var w wanted
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return true, err
	}
	_, err := w.reconcile(context.Background())
	return true, err
}

// reconcile puts the lanes in force, and returns what then is not.
func (w wanted) reconcile(ctx context.Context) (missing []journal.Step, err error) {
	var steps []journal.Step
	for _, p := range []netpath.Path{express.Path{}, macvlan.Path{}, bridge.Path{GRO: true}, bridge.Path{}} {
		var lanes []netpath.Lane
		for name, n := range w.Lanes {
			if n.Path == p.Name() {
				lanes = append(lanes, netpath.Of(fstest.MapFS{}, name, n))
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
	if _, left, err := j.Reconcile(ctx, steps); err != nil || len(left) > 0 {
		return nil, fmt.Errorf("left alone: %v: %w", left, err)
	}
	return j.Missing(ctx, steps)
}

// Two hundred lanes come and go at random on two uplinks, by programs that are killed at any moment: the next
// one puts its own lanes in force, and recover leaves the host as it was.
func TestLanesAtRandomWithKills(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.BPF)
	dir := filepath.Join(t.TempDir(), "run")
	ip := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "ip", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("ip %s: %s", strings.Join(args, " "), out)
		}
		return string(out)
	}
	uplinks := []string{"islt-up1", "islt-up2"}
	for _, u := range uplinks {
		ip("link", "add", u, "type", "veth", "peer", "name", u+"w")
		defer ip("link", "del", u)
		ip("link", "set", u, "up")
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
		return fmt.Sprint(ip("-d", "-o", "link"), ip("netns"), pinned)
	}
	before := host()
	seed := rand.Uint64()
	t.Log("seed ", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var lanes, kills, recovered int
	for lanes < 200 {
		w := wanted{dir, map[string]lane.Network{}}
		paths := []string{"bridge", "bridge-gro", "macvlan", "express"}
		on := map[string]string{uplinks[0]: paths[r.IntN(len(paths))], uplinks[1]: paths[r.IntN(len(paths))]}
		for range r.IntN(7) {
			i := 1 + r.IntN(8)
			n := lane.Network{Device: uplinks[r.IntN(2)], MTU: []int{0, 1400}[r.IntN(2)]}
			n.Path = on[n.Device]
			if r.IntN(2) == 0 {
				n.Addresses = []lane.Address{{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 9, byte(i)}), 24)}}
			}
			w.Lanes[fmt.Sprint("islt-", i)] = n
		}
		lanes += len(w.Lanes)
		text, err := json.Marshal(w)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), putEnv+"="+string(text))
		cmd.Stderr = os.Stderr
		if err = cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Duration(r.Int64N(int64(150 * time.Millisecond))))
		_ = cmd.Process.Kill() // it may have ended
		if cmd.Wait() != nil {
			kills++
		}
		if r.IntN(3) == 0 {
			recovered++
			if _, _, err = journal.Recover(t.Context(), dir, ops()); err != nil {
				t.Fatal(err)
			}
			if after := host(); after != before {
				t.Fatalf("after recover the host is\n%sand was\n%s", after, before)
			}
			continue
		}
		missing, err := w.reconcile(t.Context())
		if err != nil || len(missing) > 0 {
			t.Fatalf("%v: not in force: %v: %v", w.Lanes, missing, err)
		}
		for name := range w.Lanes {
			if !strings.Contains(ip("-n", "isolane-"+name, "link"), netpath.Device+"@") {
				t.Fatalf("lane %s has no device", name)
			}
		}
		if all := strings.Count(ip("netns"), "isolane-islt-"); all != len(w.Lanes) {
			t.Fatalf("%d namespaces for %v", all, w.Lanes)
		}
	}
	t.Logf("%d lanes, %d programs killed, %d times recovered", lanes, kills, recovered)
}
