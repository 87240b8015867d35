package test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/host/task"
)

// kills is for more kills than a run of all tests has time for: go test ./test -run ManyRouters -kills 20.
var kills = flag.Int("kills", 1, "a session of 64 routers is killed at so many moments of each of its parts")

const (
	many       = 64
	namespaces = 2*many + 1 // a router's and a customer's each, and the server's
)

var manyRouters = fmt.Sprintf(`
apiVersion: isolane.dev/v1alpha3
kind: Scenario
metadata: {name: many, title: A customer for each of %[1]d routers}
spec:
  stealBudget: 100
  factors:
    - {name: routers, kind: instances, levels: [{name: %[1]d, share: %[1]d}]}
    - {name: placement, levels: [lane]}
    - {name: path, levels: [express]}
  lane: {cpus: {count: 1, share: %[1]d}}
  client: {policy: rr, priority: 50}
  congestionControl: reno
  probes: [{name: get, kind: router, size: 1Ki, rate: 300, connections: 1, shape: 10Gbit/s}]
  modes: {quick: {blocks: 1, windows: {router: {warmup: 300ms, measure: 2s}}}}
`, many)

// seen is what there is of a session.
type seen struct{ namespaces, routers, isolane int }

// measuring: the customers of some routers fetch, each by a process of its own.
func (s seen) measuring() bool { return s.routers == many && s.isolane > many+many/4 }

func look(t *testing.T) (s seen) {
	t.Helper()
	names, err := filepath.Glob("/run/netns/isolane-prove-*")
	s.namespaces = len(names)
	root := host.Live()
	self, serr := task.ReadStat(root, task.Dir(os.Getpid()))
	processes, perr := task.Processes(root)
	if err = errors.Join(err, serr, perr); err != nil {
		t.Fatal(err)
	}
	for _, pid := range processes {
		switch p, gone := task.ReadStat(root, task.Dir(pid)); {
		case gone != nil, p.Dead(), p.Start < self.Start: // of others
		case p.Comm == "dnsmasq":
			s.routers++
		case p.Comm == "isolane":
			s.isolane++
		}
	}
	return s
}

// started is a session that runs.
type started struct {
	*exec.Cmd
	said  string // a file
	ended chan error
}

func start(t *testing.T, file string) started {
	t.Helper()
	dir := t.TempDir()
	s := started{exec.Command(filepath.Join(binDir, "isolane"), "prove", file, "--out", dir+"/out"), dir + "/said", make(chan error, 1)}
	said, err := os.Create(s.said) // no pipe, which what it has started would keep open
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	s.Stdout, s.Stderr = said, said
	s.Env = append(os.Environ(), "TMPDIR="+filepath.Dir(file)) // of its scratch files
	if err = s.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.ended <- s.unlessLate(s.Wait()) }()
	return s
}

// unlessLate returns how a session ended, nil also for one that measured to its end and fails only because this host was too
// busy for its figures: they are not what is tested here.
func (s started) unlessLate(ended error) error {
	said, _ := os.ReadFile(s.said)
	_, why, void := strings.Cut(string(said), "isolane: no measurement of get counts; the last is void: ")
	if void && (strings.Contains(why, "the client could not keep up") || strings.Contains(why, "the instances did not measure together")) {
		return nil
	}
	return ended
}

// follow calls do with what there is of a session, until that returns true. It fails if the session ends before; what is as
// the end leaves it may be seen only then, on a busy machine.
func (s started) follow(t *testing.T, do func(is seen) bool) {
	t.Helper()
	for !do(look(t)) {
		select {
		case err := <-s.ended:
			if s.ended <- err; err == nil && do(look(t)) {
				return
			}
			said, _ := os.ReadFile(s.said)
			t.Fatalf("it ended before: %v\n%s", err, said)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// A session of 64 routers that is killed while it makes them, within a window, or while it takes them away: recover takes back
// all of it.
func TestManyRoutersKilled(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2), hosttest.BPF, hosttest.Program("nft"),
		hosttest.Program("dnsmasq"), hosttest.Program("nginx"), hosttest.Program("ip"))
	file := filepath.Join(t.TempDir(), "many.yaml")
	if err := os.WriteFile(file, []byte(manyRouters), 0o600); err != nil {
		t.Fatal(err)
	}
	whole(t, file) // has the kernel load what it needs, which stays
	before := traces(t, file)
	for range *kills {
		made, asked, left := 1+rand.IntN(namespaces), 1+rand.IntN(many), rand.IntN(namespaces)
		within := time.Duration(rand.IntN(1500)) * time.Millisecond
		measured := false
		for _, part := range []struct {
			name string
			now  func(is seen) bool
		}{
			{fmt.Sprintf("with %d of %d namespaces made", made, namespaces), func(is seen) bool { return is.namespaces >= made }},
			{fmt.Sprintf("with %d of %d routers started", asked, many), func(is seen) bool {
				return is.namespaces > 0 && is.routers >= asked // before, dnsmasq is asked for its version
			}},
			{fmt.Sprintf("%v after customers began", within), func(is seen) bool {
				if is.measuring() {
					time.Sleep(within)
				}
				return is.measuring()
			}},
			{fmt.Sprintf("with %d of %d namespaces left", left, namespaces), func(is seen) bool {
				measured = measured || is.measuring()
				return measured && is.namespaces <= left
			}},
		} {
			t.Run(part.name, func(t *testing.T) {
				s := start(t, file)
				s.follow(t, part.now)
				is := look(t)
				_ = s.Process.Kill() // it may have ended, which is told by how
				if err := <-s.ended; (err == nil || err.Error() != "signal: killed") && (err != nil || is.namespaces > 0) {
					t.Fatalf("it was not killed: %v", err)
				}
				began := time.Now()
				out, err := exec.Command(filepath.Join(binDir, "isolane"), "recover").CombinedOutput()
				undone := strings.Contains(string(out), "prove") // "undone: prove", or its lanes where all else was gone
				if err != nil || !undone && is.namespaces > 0 {
					t.Errorf("recover: %v\n%s", err, out)
				}
				t.Logf("killed with %+v, recovered in %v", is, time.Since(began).Round(time.Millisecond))
				d := cmp.Diff(before, traces(t, file))
				for range 10 { // who was killed, and who else runs isolane on this host, may take a moment to be gone
					if d == "" {
						return
					}
					who, _ := exec.Command("ps", "-C", "isolane,dnsmasq,nginx", "-o", "pid,ppid,stat,cgroup,args").CombinedOutput()
					t.Logf("left at first (-before +after): %s\n%s", d, who)
					time.Sleep(time.Second)
					d = cmp.Diff(before, traces(t, file))
				}
				if d != "" {
					t.Fatal("left after recover (-before +after): ", d)
				}
			})
		}
	}
}

// whole has a session run to its end, and logs how long its first run took to have all routers answer, and to have nothing left.
func whole(t *testing.T, file string) {
	t.Helper()
	s := start(t, file)
	began := time.Now()
	s.follow(t, func(is seen) bool { return is.routers == many })
	t.Logf("%d routers run after %v", many, time.Since(began).Round(time.Millisecond))
	s.follow(t, seen.measuring)
	s.follow(t, func(is seen) bool { return is.routers < many })
	began = time.Now()
	s.follow(t, func(is seen) bool { return is.namespaces+is.routers == 0 })
	t.Logf("gone %v after the first ended", time.Since(began).Round(time.Millisecond))
	if err := <-s.ended; err != nil {
		said, _ := os.ReadFile(s.said)
		t.Fatalf("%v\n%s", err, said)
	}
}

// traces is all that a session could leave on this host, beside what a hosttest.State has: that of the kernel's network stack,
// settings, and files beside its scenario's.
func traces(t *testing.T, scenario string) hosttest.State {
	t.Helper()
	s, err := hosttest.ReadState()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"ip -br link", "ip -br addr", "ip rule", "ip route show table all", "nft list ruleset", "find " + filepath.Dir(scenario)} {
		out, cerr := exec.Command("sh", "-c", c).CombinedOutput()
		if cerr != nil {
			t.Fatalf("%s: %v %s", c, cerr, out)
		}
		s[c] = string(out)
	}
	for _, dir := range []string{"/proc/sys/net", "/proc/sys/vm", "/proc/sys/kernel"} {
		err = errors.Join(err, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || volatile(name) {
				return err
			}
			data, rerr := os.ReadFile(name)
			s[name] = fmt.Sprint(string(data), rerr) // some may only be written
			return nil
		}))
	}
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(s, func(name, _ string) bool { return isOthers(name, filepath.Dir(scenario)) })
	return s.WithoutWorkers()
}

// isOthers reports whether a value of a State is a process that has nothing to do with a folder, neither by its environment
// nor by its arguments nor by where it is: others on this host come and go.
func isOthers(name, dir string) bool {
	pid, is := strings.CutPrefix(name, "process ")
	if !is {
		return false
	}
	pid, _, _ = strings.Cut(pid, " ")
	where, _ := os.Readlink("/proc/" + pid + "/cwd") // it may have ended
	environ, _ := os.ReadFile("/proc/" + pid + "/environ")
	cmdline, _ := os.ReadFile("/proc/" + pid + "/cmdline")
	return !strings.HasPrefix(where, dir) && !strings.Contains(string(environ)+string(cmdline), dir)
}

// volatile are sysctls that say what happens, and set nothing.
func volatile(name string) bool {
	return strings.HasPrefix(name, "/proc/sys/kernel/random/") || strings.HasPrefix(name, "/proc/sys/kernel/pty/") ||
		name == "/proc/sys/kernel/ns_last_pid" || strings.HasSuffix(name, "conntrack_count")
}
