package lab

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
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed init-ram.sh
var initRAM []byte

//go:embed init-root.sh
var initRoot []byte

// Lab is what machines are made from: a folder with QEMU, kernels and the root image.
type Lab struct{ dir string }

// Cache returns the folder for labs: $ISOLANE_LAB_CACHE, or isolane-lab in the user's cache.
func Cache() (string, error) {
	if dir := os.Getenv("ISOLANE_LAB_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "isolane-lab"), err
}

// Open returns the lab that was built last.
func Open(cache string) (Lab, error) {
	dir, err := filepath.EvalSymlinks(filepath.Join(cache, "current"))
	if errors.Is(err, os.ErrPermission) {
		return Lab{}, err
	}
	if err != nil || !strings.HasPrefix(filepath.Base(dir), recipe()) {
		return Lab{}, fmt.Errorf("%s: there is no lab of this version of isolane-lab: "+
			"isolane-lab build (root, and the network once)", cache)
	}
	return Lab{dir}, nil
}

// recipe is the beginning of a lab's name. It covers everything that the lab is made from except the versions
// of packages.
func recipe() string {
	const revision = 1 // increase it when the code changes what it makes
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %s %v %v %v %v", revision, initRAM, initRoot,
		guestPackages(), qemuPackages(), kernelPackages(), moduleFolders()))
	return fmt.Sprintf("%s-%x", suite, sum[:4])
}

// builder makes a lab in a new folder, which gets its final name when the lab is complete.
type builder struct {
	ctx  context.Context // one call, many steps
	dir  string
	log  io.Writer
	from time.Time
}

// Build makes a lab unless one exists; with update, also if there are newer packages. If it has something to
// make, it needs root, mmdebstrap and the network. Of the earlier labs, it keeps the last one.
func Build(ctx context.Context, cache string, update bool, log io.Writer) (Lab, error) {
	if l, err := Open(cache); err == nil && !update {
		fmt.Fprintf(log, "%s is ready\n", l.dir)
		return l, nil
	}
	unlock, err := prepare(cache)
	if err != nil {
		return Lab{}, err
	}
	defer unlock()
	dir, err := os.MkdirTemp(cache, ".building-")
	if err != nil {
		return Lab{}, err
	}
	defer remove(dir) //nolint:errcheck // gone after the rename; else the next build removes it
	b := &builder{ctx: ctx, dir: dir, log: log, from: time.Now()}
	versions, releases, err := b.versions()
	if err != nil {
		return Lab{}, err
	}
	sum := sha256.Sum256([]byte(versions))
	l := Lab{filepath.Join(cache, fmt.Sprintf("%s-%x", recipe(), sum[:4]))}
	if _, err = os.Stat(l.dir); err != nil {
		if err = b.make(versions, releases); err != nil {
			return Lab{}, err
		}
		if err = os.Rename(dir, l.dir); err != nil {
			return Lab{}, err
		}
	}
	if err = l.makeCurrent(cache); err != nil {
		return Lab{}, err
	}
	b.say("%s is ready", l.dir)
	return l, nil
}

// prepare checks what a build needs, waits for a build that is under way, and removes what a crashed one has
// left.
func prepare(cache string) (unlock func(), err error) {
	for _, program := range []string{"mmdebstrap", "mkfs.ext4", "xz", "xargs", "apt-get", "dpkg", "chroot"} {
		if _, err = exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("%s is missing: apt-get install mmdebstrap e2fsprogs xz-utils findutils", program)
		}
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("building the lab needs root: sudo isolane-lab build; running it does not")
	}
	if err = os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	var disk unix.Statfs_t
	const need = 3 << 30
	if err = unix.Statfs(cache, &disk); err != nil {
		return nil, fmt.Errorf("%s: %w", cache, err)
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < need {
		return nil, fmt.Errorf("%s: %d MiB are free, the lab needs %d: set ISOLANE_LAB_CACHE to a larger disk",
			cache, free>>20, need>>20)
	}
	lock, err := os.Create(filepath.Join(cache, ".lock"))
	if err != nil {
		return nil, err
	}
	if err = unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", lock.Name(), err), lock.Close())
	}
	left, err := filepath.Glob(filepath.Join(cache, ".building-*"))
	for _, dir := range left {
		err = errors.Join(err, remove(dir))
	}
	return func() { _ = lock.Close() }, err
}

// remove removes a folder, unless a killed program has left something mounted in it.
func remove(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			return fmt.Errorf("%s is still mounted: umount it", f[4])
		}
	}
	return os.RemoveAll(dir)
}

// make makes all parts of a lab.
func (b *builder) make(versions string, releases map[string]release) error {
	list := filepath.Join(b.dir, "packages") // for people
	for _, step := range []func() error{
		b.qemu,
		func() error { return b.kernels(releases) },
		func() error { return b.root(releases) },
		func() error { return os.WriteFile(list, []byte(versions), 0o644) },
		func() error { return remove(filepath.Join(b.dir, "apt")) },
		func() error { return os.Chmod(b.dir, 0o755) }, // everybody may run machines
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// makeCurrent points current at the lab, and removes all but the old and the new one.
func (l Lab) makeCurrent(cache string) error {
	link, current := filepath.Join(cache, ".current"), filepath.Join(cache, "current")
	before, _ := os.Readlink(current) // none yet
	_ = os.Remove(link)
	if err := os.Symlink(filepath.Base(l.dir), link); err != nil {
		return err
	}
	if err := os.Rename(link, current); err != nil {
		return err
	}
	labs, err := filepath.Glob(filepath.Join(cache, suite+"-*"))
	for _, dir := range labs {
		if name := filepath.Base(dir); name != before && dir != l.dir {
			err = errors.Join(err, remove(dir))
		}
	}
	return err
}

func (b *builder) say(format string, args ...any) {
	fmt.Fprintf(b.log, "%3.0f s  %s\n", time.Since(b.from).Seconds(), fmt.Sprintf(format, args...))
}

// run runs a program. Its error has the end of the program's output.
func (b *builder) run(name string, args ...string) (string, error) {
	cmd := exec.CommandContext(b.ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	cmd.Dir = b.dir
	// Whatever ends this process also ends the program. The signal is sent when the starting thread ends, so
	// that thread is kept.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) } // with its children
	cmd.WaitDelay = 10 * time.Second
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		last := strings.Join(lines[max(0, len(lines)-3):], " | ")
		return "", fmt.Errorf("%s: %w: %s", name, cmp.Or(b.ctx.Err(), err), last)
	}
	return out.String(), nil
}

// release is the release of a kernel, such as "6.12.107+deb13-rt-amd64", and its suite.
type release struct{ name, suite string }

// versions returns a line with name and version for each package of the lab, and the kernels by their names
// in descriptions of machines. A mirror may lack the older suites.
func (b *builder) versions() (string, map[string]release, error) {
	mirror, err := b.mirror()
	if err != nil {
		return "", nil, err
	}
	var lines []string
	releases := map[string]release{}
	for _, s := range suites() {
		packages := kernelPackages()[s]
		if s == suite {
			packages = slices.Concat([]string{"?essential"}, guestPackages(), qemuPackages(), packages)
		}
		found, err := b.packages(mirror, s, packages)
		switch {
		case err != nil && (s == suite || b.ctx.Err() != nil):
			return "", nil, err
		case err != nil:
			b.say("no machines with the kernel %s: %v", s, err)
		}
		for _, line := range found {
			name, kernel, ok := kernelOf(s, line)
			if ok {
				releases[name] = kernel
			}
			if ok || s == suite { // only the kernel of the older suites is used
				lines = append(lines, line)
			}
		}
	}
	for _, name := range []string{"generic", "rt"} {
		if releases[name].name == "" {
			return "", nil, fmt.Errorf("kernels: expected one for %s among the packages of %s, found %v",
				name, suite, releases)
		}
	}
	b.say("versions of %d packages known", len(lines))
	return strings.Join(lines, ""), releases, nil
}

// apt returns options that keep apt off the machine's own lists, and make it use those of a suite.
func (b *builder) apt(suite string) []string {
	dir := b.aptDir(suite)
	return []string{"-qq", "-oDir::Etc::SourceList=" + dir + "/lab.sources", "-oDir::Etc::SourceParts=/dev/null",
		"-oDir::Etc::Preferences=/dev/null", "-oDir::Etc::PreferencesParts=/dev/null",
		"-oDir::State::Lists=" + dir + "/lists", "-oDir::State::Status=" + dir + "/status",
		"-oDir::Cache=" + dir + "/cache", "-oAPT::Sandbox::User=root"}
}

func (b *builder) aptDir(suite string) string { return filepath.Join(b.dir, "apt", suite) }

// packages reads a suite's lists, whose signature apt checks, from the mirror that the machine itself uses.
// It returns a sorted line for each package that would be installed on an empty system.
func (b *builder) packages(mirror, suite string, packages []string) ([]string, error) {
	dir := b.aptDir(suite)
	for _, d := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	sources := fmt.Sprintf("Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n",
		mirror, suite, keyring)
	for name, text := range map[string]string{"lab.sources": sources, "status": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	if _, err := b.run("apt-get", append(b.apt(suite), "update")...); err != nil {
		return nil, fmt.Errorf("%s (its keys are in the package debian-archive-keyring): %w", suite, err)
	}
	install := []string{"--simulate", "--no-install-recommends", "install"}
	text, err := b.run("apt-get", slices.Concat(b.apt(suite), install, packages)...)
	if err != nil {
		return nil, fmt.Errorf("%s has not all packages that lab/image.go lists: %w", suite, err)
	}
	var lines []string
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "Inst" {
			lines = append(lines, f[1]+" "+strings.TrimPrefix(f[2], "(")+"\n")
		}
	}
	slices.Sort(lines)
	return lines, nil
}

// mirror returns the mirror from which the machine itself gets Debian.
func (b *builder) mirror() (string, error) {
	const format = "$(REPO_URI) $(COMPONENT) $(LABEL)"
	text, err := b.run("apt-get", "indextargets", "--format", format, "Identifier: Packages")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 3 && f[1] == "main" && f[2] == "Debian" {
			return f[0], nil
		}
	}
	return "", errors.New("apt-get indextargets: no mirror with Debian's main among the machine's sources: " +
		"run apt-get update")
}

// kernelOf finds a kernel in the line of a package, and its name in descriptions of machines. ok is false for
// other packages, including those that only depend on the newest kernel.
func kernelOf(from, line string) (name string, kernel release, ok bool) {
	pkg, _, _ := strings.Cut(line, " ")
	version, ok := strings.CutPrefix(pkg, "linux-image-")
	switch {
	case !ok || version[0] < '0' || version[0] > '9':
		return "", release{}, false
	case from != suite:
		name = from
	case strings.HasSuffix(version, "-rt-amd64"):
		name = "rt"
	default:
		name = "generic"
	}
	return name, release{version, from}, true
}
