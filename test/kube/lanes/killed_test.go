package lanes_test

import (
	"errors"
	"fmt"
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
	}{
		{"a lane's first change is written down", "write,pwrite64", state + "lanes.journal", false},
		{"the lane is recorded", "renameat,renameat2", state + "lanes.json", false},
		{"the claim's file gets its name", "renameat,renameat2", "/var/run/cdi/isolane.dev-lane-%s.json", false},
		{"the lane comes to its container", "openat", state + "attach-kube-%s-0-1.journal", false},
		{"the lane's first change is taken back", "write,pwrite64", state + "lanes.journal", true},
		{"the record goes", "unlinkat", state + "lanes.json", true},
		{"the claim's file goes", "unlinkat", "/var/run/cdi/isolane.dev-lane-%s.json", true},
	} {
		t.Run(at.name, func(t *testing.T) {
			c.lane(t, "edge", "", "2")
			if at.deleted {
				c.ready(t, "edge")
			}
			file := at.file
			if strings.Contains(file, "%s") {
				file = fmt.Sprintf(file, c.claim(t))
			}
			died := c.killAt(t, strace, at.calls, file)
			if at.deleted {
				c.kubectl(t, "", "delete", "pod/edge", "resourceclaimtemplate/edge", "--wait=false")
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
				c.delete(t, "edge")
			}
			c.kubectl(t, "", "wait", "--for=delete", "pod/edge", "--timeout=50s")
			c.until(t, "the lane is released", c.noLanes)
			c.noFiles(t)
		})
	}
}

// claim waits for the claim of the pod, and returns its uid.
func (c *cluster) claim(t *testing.T) (uid string) {
	t.Helper()
	c.until(t, "the claim is there", func() (err error) {
		uid, err = c.tryKubectl(t, "", "get", "resourceclaims", "-o", "jsonpath={.items[*].metadata.uid}")
		if err == nil && uid == "" {
			err = errors.New("none")
		}
		return err
	})
	return uid
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
