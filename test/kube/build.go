// Package kube builds a real Kubernetes for tests: the programs that the tool lines of its go.mod name, in
// the pinned versions.
package kube

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed go.mod
var goMod []byte

//go:embed go.sum
var goSum []byte

// step is a call of go build.
type step struct {
	name     string // what it builds; with a slash at the end, a folder below bin
	flags    []string
	packages []string
	cgo      bool
}

// steps returns all steps of a build, the cheapest first, so that a missing program is reported early.
func steps() ([]step, error) {
	version := regexp.MustCompile(`(?m)^\s*k8s.io/kubernetes (v(\d+)\.(\d+)\.\d+)`).FindSubmatch(goMod)
	if version == nil {
		return nil, errors.New("test/kube/go.mod: expected a line that requires k8s.io/kubernetes")
	}
	const x = "-X k8s.io/component-base/version."
	plain := []string{"-ldflags", "-s -w"}
	// Without these flags kubelet and kubectl report v0.0.0-master.
	stamped := []string{"-ldflags", fmt.Sprintf("-s -w %[1]sgitVersion=%[2]s %[1]sgitMajor=%[3]s "+
		"%[1]sgitMinor=%[4]s", x, version[1], version[2], version[3])}
	// The kubelet uses the default seccomp profile for each sandbox, so runc needs libseccomp.
	static := []string{"-tags", "seccomp netgo osusergo", "-ldflags", "-s -w -extldflags -static"}
	below := func(prefix string, names ...string) (packages []string) {
		for _, name := range names {
			packages = append(packages, prefix+name)
		}
		return packages
	}
	return []step{
		{"runc", static, []string{"github.com/opencontainers/runc"}, true},
		{"cni/", plain, below("github.com/containernetworking/plugins/plugins/", "main/bridge", "main/loopback",
			"ipam/host-local"), false},
		{"etcd", plain, []string{"go.etcd.io/etcd/server/v3"}, false},
		{"", plain, below("github.com/containerd/containerd/v2/cmd/", "containerd",
			"containerd-shim-runc-v2", "ctr"), false},
		{"", stamped, below("k8s.io/kubernetes/cmd/", "kube-apiserver", "kube-controller-manager", "kube-scheduler",
			"kubelet", "kubectl"), false},
	}, nil
}

// only returns the parts of the steps that make the named programs; without names, all.
func only(all []step, names []string) (some []step, err error) {
	if len(names) == 0 {
		return all, nil
	}
	var known []string
	for _, s := range all {
		s.packages = slices.DeleteFunc(s.packages, func(pkg string) bool {
			name := cmp.Or(strings.TrimSuffix(s.name, "/"), path.Base(pkg))
			known = append(known, name)
			return !slices.Contains(names, name)
		})
		if len(s.packages) > 0 {
			some = append(some, s)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%s: expected one of %s", name, strings.Join(slices.Compact(known), ", "))
		}
	}
	return some, nil
}

// Programs returns the folder of the programs, or an error if they are not built.
func Programs() (string, error) {
	dir, err := programs(nil)
	if err != nil {
		return "", err
	}
	if _, err = os.Stat(dir); err != nil {
		return "", fmt.Errorf("%s: expected the programs of Kubernetes: make kube-bin", dir)
	}
	return dir, nil
}

// programs returns the folder of some programs, or of all, named after everything that they are made from.
func programs(names []string) (string, error) {
	cache, err := cache()
	if err != nil {
		return "", err
	}
	all, err := steps()
	if err == nil {
		all, err = only(all, names)
	}
	if err != nil {
		return "", err
	}
	// The Go that built this program also builds the others.
	tools := runtime.Version() + " " + runtime.GOARCH
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %s %s %v", pins(), goSum, tools, all))
	return filepath.Join(cache, fmt.Sprintf("%x", sum[:6])), nil
}

// pins returns the lines of go.mod that say what is built, without their grouping: a module that this
// module's tests also use is built in the same way.
func pins() (lines []string) {
	for line := range strings.Lines(string(goMod)) {
		line, _, _ = strings.Cut(line, "//")
		if f := strings.Fields(line); len(f) > 1 && f[1] != "(" {
			lines = append(lines, strings.Join(f, " "))
		}
	}
	slices.Sort(lines)
	return lines
}

// cache returns $ISOLANE_KUBE_CACHE, or isolane-kube in the user's cache.
func cache() (string, error) {
	if dir := os.Getenv("ISOLANE_KUBE_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "isolane-kube"), err
}

// Build builds the named programs, without names all, unless they exist, and returns their folder, which may
// have others too. It needs the network once, and for runc also gcc, pkg-config and libseccomp-dev. Of the
// earlier folders, it keeps the last one.
func Build(ctx context.Context, log io.Writer, names ...string) (string, error) {
	dir, err := programs(names)
	if err != nil {
		return "", err
	}
	if all, aerr := Programs(); aerr == nil {
		dir = all
	}
	if err = os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	lock, err := os.Create(filepath.Join(filepath.Dir(dir), ".lock"))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err = unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("%s: %w", lock.Name(), err)
	}
	if _, err = os.Stat(dir); err == nil {
		fmt.Fprintf(log, "%s is ready\n", dir)
		return dir, nil
	}
	building := filepath.Join(filepath.Dir(dir), ".building")
	if err = os.RemoveAll(building); err == nil { // the remains of a killed build
		err = build(ctx, building, log, names)
	}
	if err == nil {
		err = os.Rename(filepath.Join(building, "bin"), dir)
	}
	if err == nil {
		err = errors.Join(os.RemoveAll(building), removeOld(dir))
	}
	return dir, err
}

// build builds programs into the folder bin, in a module with our go.mod and go.sum and without sources.
func build(ctx context.Context, dir string, log io.Writer, names []string) error {
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		return err
	}
	for name, content := range map[string][]byte{"go.mod": goMod, "go.sum": goSum} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	all, err := steps()
	if err == nil {
		all, err = only(all, names)
	}
	if err != nil {
		return err
	}
	from := time.Now()
	for _, s := range all {
		args := append([]string{"build", "-trimpath", "-buildvcs=false", "-o", "bin/" + s.name}, s.flags...)
		cmd := exec.CommandContext(ctx, "go", append(args, s.packages...)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
		if s.cgo {
			cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			lines := strings.Split(string(bytes.TrimSpace(out)), "\n")
			last := strings.Join(lines[max(0, len(lines)-5):], " | ")
			return fmt.Errorf("go build %s: %w: %s", s.packages[0], err, last)
		}
		fmt.Fprintf(log, "%4.0f s  %s\n", time.Since(from).Seconds(), strings.Join(s.packages, " "))
	}
	return nil
}

// removeOld removes all folders beside dir except the newest.
func removeOld(dir string) error {
	others, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "[0-9a-f]*"))
	var newest string
	var made time.Time
	for _, other := range others {
		if info, gone := os.Stat(other); gone == nil && other != dir && info.ModTime().After(made) {
			newest, made = other, info.ModTime()
		}
	}
	for _, other := range others {
		if other != dir && other != newest {
			err = errors.Join(err, os.RemoveAll(other))
		}
	}
	return err
}
