package lanes_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"isolane.dev/isolane/test/kube/bed"
)

// Pods come, go and are resized, and daemons are killed, at random: no CPU has two owners, and nothing is
// left. It takes 20 steps, or $ISOLANE_KUBE_STEPS, from $ISOLANE_KUBE_SEED or a seed from the clock, which is
// logged.
func TestSequence(t *testing.T) {
	steps, err := strconv.Atoi(os.Getenv("ISOLANE_KUBE_STEPS"))
	if err != nil {
		steps = 20
	}
	seed, err := strconv.ParseUint(os.Getenv("ISOLANE_KUBE_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("ISOLANE_KUBE_SEED=%d", seed)
	c := share(t)
	c.run(t)
	s := &sequence{cluster: c, random: rand.New(rand.NewPCG(seed, 0))}
	end, _ := t.Deadline()
	done := 0
	for ; done < steps && !t.Failed() && (end.IsZero() || time.Until(end) > bed.Patient(3*time.Minute)); done++ {
		s.step(t, done)
		s.look(t)
	}
	for _, name := range s.pods {
		c.kubectl(t, "", "delete", "pod/"+name, "--wait=false")
	}
	c.kubectl(t, "", "delete", "pod", "--all", "--wait")
	c.until(t, "the lanes are released", c.noLanes)
	c.noFiles(t) // they go after the lanes
	t.Logf("%d steps of %d: %v; %d looks, %d at a lane with a busy container, %d for two seconds by eBPF; other user threads on a "+
		"lane's CPUs: %d while the node part was there, %d while it was away or had just come", done, steps, s.did, s.looks, s.busy,
		s.traced, s.foreign, s.away)
}

type sequence struct {
	*cluster
	random *rand.Rand
	pods   []string // that are there, those with a lane first by their names "lane-"
	number int
	did    map[string]int
	// What was seen.
	looks, busy, traced, foreign, away int
	killed                             time.Time // the node part, or what it needs
}

func (s *sequence) step(t *testing.T, at int) {
	t.Helper()
	if s.did == nil {
		s.did = map[string]int{}
	}
	what := []string{"lane", "lane", "pod", "delete", "delete", "restart", "restart", "resize", "kill node part", "kill kubelet",
		"kill containerd"}[s.random.IntN(11)]
	if len(s.pods) == 0 || what == "pod" && len(s.pods) > 4 {
		what = "lane"
	}
	name := ""
	if len(s.pods) > 0 {
		name = s.pods[s.random.IntN(len(s.pods))]
	}
	switch what {
	case "lane", "pod":
		s.number++
		name = fmt.Sprintf("%s-%d", what, s.number)
		p := pod{name: name, all: []container{{name: "main", cpus: "10m", args: `"2"`}}}
		if what == "lane" {
			p.claims = map[string]string{"lane": request(`{cpus: "1"}`, "{}")}
			p.all[0].claim, p.all[0].cpus = "lane", "1"
		}
		s.applyPod(t, p)
		s.pods = append(s.pods, name)
	case "delete":
		s.kubectl(t, "", "delete", "pod/"+name, "--wait=false")
		s.pods = slices.DeleteFunc(s.pods, func(n string) bool { return n == name })
	case "restart":
		for _, pid := range s.processesNow(name) { // none: it does not run yet
			_ = syscall.Kill(pid, syscall.SIGKILL) // or has ended meanwhile
		}
	case "resize":
		most := map[bool]int{true: 1000, false: 10}[strings.HasPrefix(name, "lane-")]
		s.resize(t, name, fmt.Sprintf("requests: {cpu: %dm}", most+s.random.IntN(100)))
	case "kill node part":
		s.killed = time.Now()
		s.kill(t)
		s.runWithout(t)
	default:
		s.killed = time.Now()
		daemon := strings.TrimPrefix(what, "kill ")
		s.until(t, daemon+" runs", func() error { return s.node.Signal(daemon, syscall.SIGKILL) })
	}
	s.did[what]++
	pause := time.Duration(s.random.IntN(4000)) * time.Millisecond
	t.Logf("step %d: %s %s, then %v; %d looks before, %d by eBPF", at, what, name, pause, s.looks, s.traced)
	time.Sleep(bed.Patient(pause))
}

// look compares the lanes in force with each other, and each thread that runs in a quarter of a second with them. Where
// the kernel keeps lanes, eBPF says for two seconds who runs on their CPUs.
func (s *sequence) look(t *testing.T) {
	t.Helper()
	before, err := s.lanes(t)
	if err != nil {
		t.Logf("isolane status: %v", err) // somebody changes lanes
		return
	}
	ran := map[string]int{}
	for _, p := range s.users(t) {
		for _, th := range p.threads {
			ran[p.key(th)] = th.ticks
		}
	}
	var sources []source
	traced := len(before.kept) > 0
	if traced {
		if sources, err = s.watched(t, 2*time.Second); drifted(err) { // what kills leave is put back later
			err = nil
		}
	} else {
		time.Sleep(250 * time.Millisecond)
	}
	after := s.users(t)
	if now, lerr := s.lanes(t); lerr != nil || !reflect.DeepEqual(now, before) {
		return // lanes came or went meanwhile
	}
	s.looks++
	if traced && err != nil {
		t.Error(err)
	} else if traced {
		s.traced++
	}
	for _, found := range sources {
		lane := before.owner[found.CPU]
		if found.Kind == "task" && before.kept[lane] && before.groups["/sys/fs/cgroup"+found.Cgroup] != lane {
			s.foreign++
			t.Errorf("a user thread on a CPU of lane %s, which is a partition of the kernel's: %+v", lane, found)
		}
	}
	seen := map[string]bool{}
	for _, p := range after {
		own := before.groups[p.group]
		for _, th := range p.threads {
			ticks, known := ran[p.key(th)]
			lane := before.owner[th.last]
			switch {
			case !known || ticks == th.ticks || lane == own && own == "":
			case lane == own:
				seen[lane] = true
			case own != "":
				t.Errorf("%s of lane %s ran on CPU %d, which is not the lane's", p.key(th), own, th.last)
			case before.kept[lane]:
				s.foreign++
				t.Errorf("%s of %s ran on CPU %d of lane %s, which is a partition of the kernel's", p.key(th), p.group, th.last, lane)
			case time.Since(s.killed) < bed.Patient(15*time.Second):
				s.away++
			default:
				s.foreign++
				comm, _ := os.ReadFile(p.dir + "/comm")
				t.Logf("%s (%s) of %s ran on CPU %d of lane %s", p.key(th), strings.TrimSpace(string(comm)), p.group, th.last, lane)
			}
		}
	}
	s.busy += len(seen)
}

// inForce has the lanes by their CPUs, and by the cgroups of their containers.
type inForce struct {
	owner   map[int]string
	groups  map[string]string
	kept    map[string]bool // lanes whose cgroup is a partition: no other user thread can be on their CPUs
	written time.Time       // the record of the lanes: one that goes to its container and back may look as before
}

func (s *sequence) lanes(t *testing.T) (inForce, error) {
	t.Helper()
	f := inForce{owner: map[int]string{}, groups: map[string]string{}, kept: map[string]bool{}}
	if record, err := os.Stat("/run/isolane/lanes.json"); err == nil { // no lanes: none
		f.written = record.ModTime()
	}
	out, err := exec.Command(s.programs+"/isolane", "status", "-o", "json").Output()
	var status struct {
		Lanes []struct {
			Name, CPUs, Group string
			Own               bool
			Attached          []struct{ Group string }
		}
	}
	if err == nil {
		err = json.Unmarshal(out, &status)
	}
	for _, l := range status.Lanes {
		for id := range list(t, l.CPUs) {
			if other := f.owner[id]; other != "" {
				t.Errorf("CPU %d is of lanes %s and %s", id, other, l.Name)
			}
			f.owner[id] = l.Name
		}
		f.groups[l.Group] = l.Name
		for _, at := range l.Attached {
			f.groups[at.Group] = l.Name
		}
		for group, name := range f.groups {
			state, _ := os.ReadFile(group + "/cpuset.cpus.partition") // none with cgroup v1
			if text := strings.TrimSpace(string(state)); name == l.Name && (text == "root" || text == "isolated") {
				f.kept[name] = true
			}
		}
	}
	return f, err
}

// user is a process of the machine that is not a kernel thread.
type user struct {
	dir, group string
	threads    []thread
}

func (u user) key(th thread) string { return fmt.Sprint(u.dir, "/task/", th.tid) }

func (s *sequence) users(t *testing.T) (all []user) {
	t.Helper()
	top, err := s.node.CgroupDir("cpuset")
	if err != nil {
		t.Fatal(err)
	}
	top = strings.TrimSuffix(top, s.node.Cgroup)
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		groups, err := os.ReadFile(dir + "/cgroup")
		if _, kernel := os.Readlink(dir + "/exe"); err != nil || kernel != nil {
			continue // or it has ended
		}
		u := user{dir: dir}
		for line := range strings.Lines(string(groups)) {
			f := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if f[1] == "cpuset" || f[0] == "0" && u.group == "" {
				u.group = top + f[2]
			}
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		u.threads = threadsOf(pid)
		all = append(all, u)
	}
	return all
}
