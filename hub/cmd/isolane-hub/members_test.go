package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

var kills = flag.Int("kills", 3, "how often one of three hubs is killed")

// three is three hubs on this machine that act as one, each with its own port.
type three struct {
	*fleet
	key, recipient string
	hubs           map[string]*exec.Cmd // by folder: hub, hub1, …
	began          int
}

// address returns the address of a hub by its number.
func (h *three) address(n int) string {
	at := "127.0.0.1"
	if h.away != "" { // one is behind a cable
		at = map[bool]string{true: siteAt, false: hubAt}[folder(n) == h.away]
	}
	return fmt.Sprintf("%s:%d", at, h.port+3*n)
}

func folder(n int) string { return fmt.Sprint("hub", n) }

// begin starts one of the hubs, and waits until it is ready.
func (h *three) begin(t *testing.T, n int, more ...string) {
	t.Helper()
	h.began++
	name := fmt.Sprintf("up-%d-%d", n, h.began)
	at, port, _ := strings.Cut(h.address(n), ":")
	h.hubs[folder(n)] = h.start(t, name, append([]string{"up", "--dir", h.file(folder(n)), "--programs", h.programs,
		"--address", at, "--port", port}, more...)...)
	h.join = h.joining(t, name)
}

// add adds another hub, invited by one of them.
func (h *three) add(t *testing.T, n, by int) {
	t.Helper()
	sealed := h.file(fmt.Sprint("invitation", n))
	until(t, "another hub is invited", func() error { // not before the others have been healthy for some seconds
		out, err := h.command("invite", sealed, "--dir", h.file(folder(by)), "--address", h.address(n), "--recipient",
			h.recipient).CombinedOutput()
		if err != nil {
			err = errors.New(string(out))
		}
		return err
	})
	h.run(t, "accept", sealed, "--dir", h.file(folder(n)), "--identity", h.key)
	h.begin(t, n)
}

func newThree(t *testing.T, b *bench) *three {
	t.Helper()
	h := &three{fleet: &fleet{bench: b}, hubs: map[string]*exec.Cmd{}}
	key, err := age.GenerateX25519Identity()
	if err == nil {
		h.key, h.recipient = h.file("key"), key.Recipient().String()
		err = os.WriteFile(h.key, []byte(key.String()+"\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	h.port = 20000 + 12*rand.IntN(1000)
	h.begin(t, 0)
	out, err := h.command("invite", h.file("none"), "--dir", h.file(folder(0)), "--address", h.address(1),
		"--recipient", h.recipient).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "this hub is alone: expected one that was started with --shared") {
		t.Errorf("a hub that is alone invites: %s%v", out, err)
	}
	h.end(t, h.hubs[folder(0)], syscall.SIGTERM)
	h.begin(t, 0, "--shared")
	h.add(t, 1, 0)
	h.add(t, 2, 1)
	h.administer(t, h.kubeconfig(0))
	return h
}

func (h *three) kubeconfig(n int) string { return filepath.Join(h.file(folder(n)), "admin.kubeconfig") }

// of returns an administrator's client for one of the hubs.
func (h *three) of(t *testing.T, n int) kubernetes.Interface {
	t.Helper()
	c, err := clientcmd.BuildConfigFromFlags("", h.kubeconfig(n))
	if err != nil {
		t.Fatal(err)
	}
	c.QPS = -1
	core, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return core
}

// writer writes one object after another to whichever hub accepts it.
type writer struct {
	hubs    []kubernetes.Interface
	written []string
}

// write writes until the context ends. An object that exists was written before, and its answer was lost.
func (w *writer) write(ctx context.Context, said chan<- time.Time) {
	for n, hub := 0, 0; ctx.Err() == nil; {
		name := fmt.Sprintf("written-%06d", n)
		brief, cancel := context.WithTimeout(ctx, time.Second)
		_, err := w.hubs[hub].CoreV1().ConfigMaps("default").Create(brief,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		cancel()
		if err != nil && !apierrors.IsAlreadyExists(err) {
			hub = (hub + 1) % len(w.hubs)
			continue
		}
		w.written, n = append(w.written, name), n+1
		select {
		case said <- time.Now():
		default:
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// lost returns what was acknowledged and is missing at a hub.
func (w *writer) lost(t *testing.T, hub kubernetes.Interface) (lost []string) {
	t.Helper()
	list, err := hub.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, m := range list.Items {
		has[m.Name] = true
	}
	for _, name := range w.written {
		if !has[name] {
			lost = append(lost, name)
		}
	}
	return lost
}

// Each of three hubs is killed during writes. No acknowledged write is missing at any of them.
func TestWrites(t *testing.T) {
	long(t)
	h := newThree(t, withoutHost(t))
	w, said, stop := h.writing(t)
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	var gaps []time.Duration
	for range *kills {
		n := rng.IntN(3)
		<-said // writing goes on
		from := time.Now()
		h.end(t, h.hubs[folder(n)], syscall.SIGKILL)
		gaps = append(gaps, next(t, said, from))
		t.Logf("hub %d killed: the next write was acknowledged after %s", n, gaps[len(gaps)-1])
		h.begin(t, n)
	}
	stop()
	slices.Sort(gaps)
	t.Logf("seed %d: %d kills, %d writes; the next one was acknowledged after %s (median), %s at most", seed, len(gaps),
		len(w.written), gaps[len(gaps)/2], gaps[len(gaps)-1])
	for n, hub := range w.hubs {
		if lost := w.lost(t, hub); len(lost) > 0 {
			t.Errorf("hub %d has lost %v", n, lost)
		}
	}
}

// next waits for the first write that is acknowledged after a moment, and returns how long after.
func next(t *testing.T, said <-chan time.Time, from time.Time) time.Duration {
	t.Helper()
	for {
		select {
		case at := <-said:
			if after := at.Sub(from); after >= time.Millisecond {
				return after
			}
		case <-time.After(time.Minute):
			t.Fatal("nothing was written for a minute")
		}
	}
}

func (h *three) writer(t *testing.T) *writer {
	t.Helper()
	return &writer{hubs: []kubernetes.Interface{h.of(t, 0), h.of(t, 1), h.of(t, 2)}}
}

// writing returns a writer that writes until it is stopped. said receives the times of acknowledged writes.
func (h *three) writing(t *testing.T) (w *writer, said <-chan time.Time, stop func()) {
	t.Helper()
	w = h.writer(t)
	ctx, cancel := context.WithCancel(t.Context())
	acknowledged, done := make(chan time.Time, 1), make(chan struct{})
	go func() {
		defer close(done)
		w.write(ctx, acknowledged)
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return w, acknowledged, stop
}

// Three hubs act as one. One is replaced, and two are lost. What runs at the site goes on, and the host finds
// the remaining hubs.
func TestThreeHubs(t *testing.T) {
	long(t)
	h := newThree(t, newBench(t))
	h.run(t, append(slices.Clone(h.join), "--dir", h.file("agent"), "--name", "one")...)
	h.agent(t)
	h.make(t, "apps", "App", "default", "web", spec(1, nil))
	h.app(t, "default", "web", "Running")
	first := running(t, "default.web")
	w := h.writer(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	w.write(ctx, nil)
	stop()
	until(t, "the host knows all hubs", func() error {
		known, err := os.ReadFile(filepath.Join(h.file("agent"), "hub", "joined.json"))
		for n := range 3 {
			if err == nil && !strings.Contains(string(known), h.address(n)) {
				err = fmt.Errorf("it knows %s", known)
			}
		}
		return err
	})

	h.end(t, h.hubs[folder(2)], syscall.SIGKILL) // the hub with which the host has joined; its machine does not come back
	if err := os.RemoveAll(h.file(folder(2))); err != nil {
		t.Fatal(err)
	}
	h.run(t, "members", "--dir", h.file(folder(0)), "--remove", h.address(2))
	h.add(t, 3, 0)
	if said, want := h.run(t, "members", "--dir", h.file(folder(3))), 3; strings.Count(said, "127.0.0.1:") != want {
		t.Errorf("members: %s; expected %d", said, want)
	}
	if lost := w.lost(t, h.of(t, 3)); len(lost) > 0 {
		t.Errorf("the hub that came last does not have %v", lost)
	}
	h.make(t, "apps", "App", "default", "later", map[string]any{"replicas": 0, "lane": map[string]any{"cpus": map[string]any{"count": 1}},
		"command": []any{"true"}}) // a hub runs the controllers
	h.app(t, "default", "later", "Running")
	h.says(t, "follows the hub")

	h.end(t, h.hubs[folder(0)], syscall.SIGKILL)
	h.end(t, h.hubs[folder(3)], syscall.SIGKILL)
	h.run(t, "backup", h.file("backup.age"), "--recipient", h.recipient, "--dir", h.file(folder(1)))
	h.end(t, h.hubs[folder(1)], syscall.SIGTERM)
	if err := os.Rename(h.file(folder(1)), h.file("left")); err != nil {
		t.Fatal(err)
	}
	h.run(t, "restore", h.file("backup.age"), "--identity", h.key, "--dir", h.file(folder(1)))
	h.begin(t, 1)
	h.administer(t, h.kubeconfig(1))
	if lost := w.lost(t, h.core); len(lost) > 0 {
		t.Errorf("the hub that is left does not have %v", lost)
	}
	h.says(t, "follows the hub")
	if now := running(t, "default.web"); !slices.Equal(now, first) {
		t.Errorf("processes %v at the end, expected still %v", now, first)
	}
	h.deleteApp(t, "web")
}

// Three hubs of an older program are upgraded during writes, one after another, even while one is away. A
// host with an equally old agent follows all the time, and is then upgraded too.
func TestUpgrade(t *testing.T) {
	old := before(t)
	b := newBench(t)
	now := b.binary
	b.binary = old
	h := newThree(t, b)
	h.run(t, append(slices.Clone(h.join), "--dir", h.file("agent"), "--name", "one")...)
	agent := h.agent(t)
	h.make(t, "apps", "App", "default", "web", spec(1, nil))
	h.app(t, "default", "web", "Running")
	first := running(t, "default.web")
	w, said, stop := h.writing(t)

	b.binary = now
	h.end(t, h.hubs[folder(0)], syscall.SIGTERM)
	<-said // from before
	<-said
	h.begin(t, 0)
	h.end(t, h.hubs[folder(2)], syscall.SIGTERM) // it is away while another one is replaced
	h.end(t, h.hubs[folder(1)], syscall.SIGTERM)
	h.begin(t, 1)
	<-said
	<-said
	h.begin(t, 2)
	stop()
	for n, hub := range w.hubs {
		if lost := w.lost(t, hub); len(lost) > 0 {
			t.Errorf("hub %d has lost %v", n, lost)
		}
	}
	t.Logf("%d writes", len(w.written))
	h.says(t, "follows the hub")
	if is := running(t, "default.web"); !slices.Equal(is, first) {
		t.Errorf("processes %v of newer hubs, expected still %v", is, first)
	}
	h.deleteApp(t, "web")
	h.make(t, "apps", "App", "default", "next", spec(1, nil))
	h.app(t, "default", "next", "Running")
	second := running(t, "default.next")
	h.end(t, agent, syscall.SIGTERM)
	h.agent(t)
	h.says(t, "follows the hub")
	if is := running(t, "default.next"); !slices.Equal(is, second) {
		t.Errorf("processes %v of a newer agent, expected still %v", is, second)
	}
	h.deleteApp(t, "next")
}

// before returns a program of an older version.
func before(t *testing.T) string {
	t.Helper()
	long(t)
	old := os.Getenv("ISOLANE_HUB_BEFORE")
	if old == "" {
		t.Skip("skipped: needs an isolane-hub of an older version: ISOLANE_HUB_BEFORE=FILE")
	}
	return old
}

// An older agent joins a newer hub, and has an App, which is changed and deleted.
func TestOldAgent(t *testing.T) {
	old := before(t)
	f := newFleet(t)
	f.binary = old
	f.run(t, append(slices.Clone(f.join), "--dir", f.file("agent"), "--name", "one")...)
	f.agent(t)
	f.make(t, "apps", "App", "default", "web", spec(1, nil))
	f.app(t, "default", "web", "Running")
	first := running(t, "default.web")
	if _, err := f.resource("apps", "default").Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"command":["sleep","1000"]}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the other command runs", func() error {
		if now := running(t, "default.web"); len(now) != 1 || slices.Contains(first, now[0]) {
			return fmt.Errorf("processes %v, before %v", now, first)
		}
		return nil
	})
	f.app(t, "default", "web", "Running")
	f.says(t, "follows the hub")
	f.make(t, "apps", "App", "default", "large", spec(50, nil))
	f.app(t, "default", "large", "Pending", "too full")
	f.deleteApp(t, "web")
}

// says waits until the agent says something about its hub.
func (f *fleet) says(t *testing.T, text string) {
	t.Helper()
	until(t, "the agent says "+text, func() error {
		if said := f.run(t, "status", "--dir", f.file("agent")); !strings.Contains(said, text) {
			return errors.New(said)
		}
		return nil
	})
}
