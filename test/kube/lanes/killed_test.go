package lanes_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/test/kube/bed"
)

// The node part is killed before each of its steps, and nothing is lost or left.
func TestKilledAt(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("skipped: needs strace: ", err)
	}
	c := share(t)
	c.run(t)
	const state = "/run/isolane/"
	for _, at := range []struct {
		name, calls, file string // %s is the claim's uid
		deleted           bool
		after             string // first it is stopped when it gives a file this name
	}{
		{"a claim is answered", "openat", "/var/run/cdi/isolane.dev-lane-%s.json", false, ""},
		{"it says that it has answered", "write", "LOG", false, ""},
		{"a lane's first change is written down", "write,pwrite64", state + "lanes.journal", false, ""},
		{"the lane is recorded", "renameat,renameat2", state + "lanes.json", false, ""},
		{"the claim's file gets its name", "renameat,renameat2", "/var/run/cdi/isolane.dev-lane-%s.json", false, ""},
		{"the claim's file is written anew", "renameat,renameat2", "/var/run/cdi/isolane.dev-lane-%s.json", false, state + "lanes.json"},
		{"the lane comes to its container", "openat", state + "attach-kube-%s-0-1.journal", false, ""},
		{"the lane's first change is taken back", "write,pwrite64", state + "lanes.journal", true, ""},
		{"the record goes", "unlinkat", state + "lanes.json", true, ""},
		{"the claim's file goes", "unlinkat", "/var/run/cdi/isolane.dev-lane-%s.json", true, ""},
	} {
		t.Run(at.name, func(t *testing.T) {
			uid := c.ownClaim(t)
			if at.deleted {
				c.usesClaim(t)
				c.ready(t, "edge")
			}
			file := strings.NewReplacer("%s", uid, "LOG", c.log).Replace(at.file)
			if at.after != "" {
				first := c.stopAt(t, strace, "renameat,renameat2", at.after)
				c.usesClaim(t)
				first()
			}
			died := c.killAt(t, strace, at.calls, file)
			switch {
			case at.after != "":
				time.Sleep(500 * time.Millisecond) // strace has it
				if err := c.part.Process.Signal(unix.SIGCONT); err != nil {
					t.Fatal(err)
				}
			case at.deleted:
				c.kubectl(t, "", "delete", "pod/edge", "resourceclaim/edge", "--wait=false")
			default:
				time.Sleep(500 * time.Millisecond)
				c.usesClaim(t)
			}
			began := time.Now()
			select {
			case <-died:
			case <-time.After(bed.Patient(time.Minute)):
				t.Fatal("the node part was not killed")
			}
			t.Logf("killed %.1f s later", time.Since(began).Seconds())
			c.part = nil
			c.run(t)
			if !at.deleted {
				c.readyWithin(t, "edge", 3*time.Minute)
				c.apart(t, c.cpusOf(t, "edge"), "edge")
				c.kubectl(t, "", "delete", "pod/edge", "resourceclaim/edge", "--wait=false")
			}
			c.kubectl(t, "", "wait", "--for=delete", "pod/edge", "resourceclaim/edge", "--timeout=50s")
			c.until(t, "the lane is released", c.noLanes)
			c.noFiles(t)
		})
	}
}

// ownClaim makes the claim of the pod, and returns its uid.
func (c *cluster) ownClaim(t *testing.T) string {
	t.Helper()
	c.kubectl(t, "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: edge}\nspec: {devices: "+
		request(`{cpus: "1"}`, "{roles: {worker: 1}}")+"}\n", "apply", "-f", "-")
	return c.kubectl(t, "", "get", "resourceclaim", "edge", "-o", "jsonpath={.metadata.uid}")
}

// usesClaim makes the pod of that claim.
func (c *cluster) usesClaim(t *testing.T) {
	t.Helper()
	c.kubectl(t, c.podOf("edge", "resourceClaims: [{name: lane, resourceClaimName: edge}]",
		`claims: [{name: lane}], requests: {cpu: "1"}`, "2"), "apply", "-f", "-")
}

// stopAt makes strace stop the node part when it makes one of these system calls with a file. The returned
// function waits for that, and ends strace.
func (c *cluster) stopAt(t *testing.T, strace, calls, file string) func() {
	t.Helper()
	s := exec.CommandContext(t.Context(), strace, "-f", "-qq", "-P", file, "-e", "inject="+calls+":signal=STOP", "-o", "/dev/null",
		"-p", fmt.Sprint(c.part.Process.Pid))
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond) // strace has it
	return func() {
		t.Helper()
		still := 0
		c.until(t, "the node part stands still", func() error {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.part.Process.Pid))
			_, after, _ := strings.Cut(string(stat), ") ")
			if still++; !strings.HasPrefix(strings.ToUpper(after), "T") {
				still = 0
			}
			if still < 5 && err == nil {
				err = errors.New("not yet")
			}
			return err
		})
		_ = errors.Join(s.Process.Signal(unix.SIGTERM), s.Wait()) // it says by what it was ended
	}
}

// killAt makes strace kill the node part when it makes one of these system calls with a file. died is closed
// then.
func (c *cluster) killAt(t *testing.T, strace, calls, file string) (died chan struct{}) {
	t.Helper()
	s := exec.CommandContext(t.Context(), strace, "-f", "-qq", "-P", file, "-e", "inject="+calls+":signal=KILL", "-o", "/dev/null",
		"-p", fmt.Sprint(c.part.Process.Pid))
	s.Cancel = func() error { return s.Process.Signal(unix.SIGTERM) } // it lets go of the node part
	var said strings.Builder
	s.Stderr = &said
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	died = make(chan struct{})
	part := c.part
	go func() {
		defer close(died)
		_ = part.Wait()
	}()
	t.Cleanup(func() {
		if err := s.Wait(); t.Failed() {
			t.Logf("strace: %v: %s", err, said.String())
		}
	})
	return died
}

// noFiles waits until no files of claims are left.
func (c *cluster) noFiles(t *testing.T) {
	t.Helper()
	c.until(t, "files of claims are gone", func() error {
		whole, err := filepath.Glob(c.node.Path("/run/cdi/*"))
		half, herr := filepath.Glob(c.node.Path("/run/cdi/.isolane-*"))
		if err = errors.Join(err, herr); err == nil && len(whole)+len(half) > 0 {
			err = fmt.Errorf("left: %v %v", whole, half)
		}
		return err
	})
}
