package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/lanes"
)

var everyKill = flag.String("every-kill", "", "kill these programs at each step, by commas; \"\": one of all at each")

// way is how far an Instance has come, as the hub and its host show it.
type way struct {
	there, reserve, deleted            bool // at the hub
	phase                              string
	marked, kept, ending, lane, starts bool // at the host
}

// step is a step of an Instance. seen reports whether it was done.
type step struct {
	name string
	seen func(way) bool
}

// steps returns the steps of reserve and apply.
func steps() []step {
	return []step{
		{"reserve: the hub has asked", func(w way) bool { return w.there }},
		{"reserve: the host has marked it", func(w way) bool { return w.marked || w.kept }},
		{"reserve: its lane is in force", func(w way) bool { return w.lane }},
		{"reserve: the host has answered", func(w way) bool { return w.phase != "" }},
		{"apply: the hub has confirmed", func(w way) bool { return w.there && !w.reserve }},
		{"apply: the host has taken it over", func(w way) bool { return w.kept }},
		{"apply: its program has begun", func(w way) bool { return w.starts }},
		{"apply: the host has said so", func(w way) bool { return w.phase == "Running" }},
	}
}

// begun is the first step after which the same process must still exist.
const begun = 6

// ends returns the steps of release.
func ends() []step {
	return []step{
		{"release: it has its tombstone", func(w way) bool { return w.deleted || !w.there }},
		{"release: the host has seen it", func(w way) bool { return w.ending || !w.kept }},
		{"release: its program has ended", func(w way) bool { return !w.starts }},
		{"release: its lane is taken back", func(w way) bool { return !w.lane }},
		{"release: the host has let go", func(w way) bool { return !w.there }},
	}
}

// trial is an App during which something is killed.
type trial struct {
	*fleet
	agent  *exec.Cmd
	marker string // an argument that no other process has
	began  int
}

const onTrial = "default.trial"

// look reads how far the Instance has come.
func (f *trial) look(t *testing.T) (w way) {
	t.Helper()
	u, err := f.resource("instances", api.Namespace("one")).Get(t.Context(), onTrial, metav1.GetOptions{})
	if err == nil {
		w.there, w.deleted = true, u.GetDeletionTimestamp() != nil
		w.reserve, _, _ = unstructured.NestedBool(u.Object, "spec", "reserve")
		w.phase, _, _ = unstructured.NestedString(u.Object, "status", "phase")
	} else if !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	_, err = os.Stat(filepath.Join(f.file("agent"), "running", onTrial+".reserved"))
	w.marked = err == nil
	state, err := os.ReadFile(filepath.Join(f.file("agent"), "state.json"))
	w.kept, w.ending = err == nil && bytes.Contains(state, []byte(onTrial)), bytes.Contains(state, []byte(`"ending":true`))
	l, err := lanes.Look(lanes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, w.lane = l.Placement.Lane(onTrial)
	w.starts = len(f.processes(t)) > 0
	return w
}

// processes returns the processes of the App on the whole machine, wherever they are.
func (f *trial) processes(t *testing.T) (found []int) {
	t.Helper()
	pids, err := task.Processes(host.Live())
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && string(line) == "sleep\x00"+f.marker+"\x00" {
			found = append(found, pid)
		}
	}
	return found
}

// reach waits until a step was done.
func (f *trial) reach(t *testing.T, s step) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !s.seen(f.look(t)); {
		if time.Now().After(end) {
			t.Fatalf("%s: not within two minutes: %+v", s.name, f.look(t))
		}
	}
}

// victims returns what is killed. API server and store are children of the hub: they end with it, and it
// restarts them if they end alone.
func victims() []string { return []string{"agent", "hub", "kube-apiserver", "etcd"} }

func (f *trial) kill(t *testing.T, victim string) {
	t.Helper()
	f.began++
	switch victim {
	case "agent":
		f.end(t, f.agent, syscall.SIGKILL)
		f.agent = f.fleet.agent(t)
	case "hub":
		f.end(t, f.up, syscall.SIGKILL)
		f.up, _ = f.hub(t, fmt.Sprint("hub-", f.began))
	default:
		record := filepath.Join(f.file("hub"), "log", victim+".process")
		was, err := os.ReadFile(record)
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.Fields(string(was))[0])
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil {
			t.Fatal(err)
		}
		until(t, victim+" is there again", func() error {
			now, err := os.ReadFile(record)
			if err == nil && string(now) == string(was) {
				err = errors.New("it is not")
			}
			if err == nil {
				_, err = f.core.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
			}
			return err
		})
	}
}

// runs checks that the App runs as it should: once, in its lane, without a reservation.
func (f *trial) runs(t *testing.T) int {
	t.Helper()
	var pid int
	until(t, "it runs once, in its lane, and nothing is reserved", func() error {
		list, err := f.resource("instances", "").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		all, w := f.processes(t), f.look(t)
		l, err := lanes.Look(lanes.Options{})
		if err != nil {
			return err
		}
		if len(list.Items) != 1 || len(all) != 1 || w.marked || w.reserve || w.deleted || w.phase != "Running" || len(l.Placement.Lanes) != 1 {
			return fmt.Errorf("%d Instances, %d processes, %d lanes, %+v", len(list.Items), len(all), len(l.Placement.Lanes), w)
		}
		own, _ := l.Placement.Lane(onTrial)
		if says, _, _ := unstructured.NestedString(list.Items[0].Object, "status", "cpus"); says != own.CPUs.String() {
			return fmt.Errorf("the hub says CPUs %q, its lane has %s", says, own.CPUs)
		}
		pid = all[0]
		return nil
	})
	f.app(t, "default", "trial", "Running")
	if in := running(t, onTrial); !slices.Equal(in, []int{pid}) {
		t.Errorf("processes %v in the lane, expected %d", in, pid)
	}
	return pid
}

// starts returns how often the program of the App has started.
func (f *trial) starts(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(f.file("agent"), "running", onTrial+".tmp", "starts"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(data), "\n")
}

// once makes and deletes an App, and kills something at one step of that.
func (f *trial) once(t *testing.T, victim string, at step, n int) {
	t.Helper()
	f.began++
	f.marker = fmt.Sprintf("1000000.%d", f.began)
	f.make(t, "apps", "App", "default", "trial", map[string]any{"lane": map[string]any{"cpus": map[string]any{"count": 1}},
		"command": []any{"sh", "-c", "echo >> /tmp/starts; exec sleep " + f.marker}})
	first := 0
	if n < len(steps()) {
		if f.reach(t, at); n >= begun {
			first = f.processes(t)[0]
		}
		f.kill(t, victim)
	}
	pid := f.runs(t)
	if first != 0 && pid != first {
		t.Errorf("process %d runs, expected still %d", pid, first)
	}
	if times := f.starts(t); times != 1 {
		t.Errorf("its program has begun %d times", times)
	}
	if err := f.resource("apps", "default").Delete(t.Context(), "trial", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if n >= len(steps()) {
		f.reach(t, at)
		f.kill(t, victim)
	}
	f.gone(t, "the App", func() error {
		_, err := f.resource("apps", "default").Get(t.Context(), "trial", metav1.GetOptions{})
		return err
	})
	noLanes(t)
	if left := f.processes(t); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	left, err := filepath.Glob(filepath.Join(f.file("agent"), "running", "default.*"))
	if err != nil || len(left) > 0 {
		t.Errorf("files %v are left, %v", left, err)
	}
}

// Agent, hub, API server and store are killed at each step of reserve, apply and release. There is one owner,
// no reservation is left, the program has started once, and the host is as before at the end.
func TestKills(t *testing.T) {
	long(t)
	f := &trial{fleet: newFleet(t)}
	f.run(t, append(slices.Clone(f.join), "--dir", f.file("agent"), "--name", "one")...)
	f.agent = f.fleet.agent(t)
	before, err := hosttest.ReadState()
	if err != nil {
		t.Fatal(err)
	}
	turn := rand.IntN(len(victims()))
	for n, at := range append(steps(), ends()...) {
		all := victims()[(turn+n)%len(victims()):][:1]
		if *everyKill != "" {
			all = strings.Split(*everyKill, ",")
		}
		for _, victim := range all {
			from := time.Now()
			f.once(t, victim, at, n)
			if t.Logf("%s, %s killed: as it was after %.1f s", at.name, victim, time.Since(from).Seconds()); t.Failed() {
				return
			}
		}
	}
	after, err := hosttest.ReadState()
	if err != nil {
		t.Fatal(err)
	}
	if changes := after.WithoutWorkers().Changes(before.WithoutWorkers()); len(changes) > 0 {
		t.Errorf("the host is not as before: %v", changes)
	}
}
