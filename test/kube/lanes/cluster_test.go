// Package lanes tests lanes of pods on a real Kubernetes.
package lanes_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"isolane.dev/isolane/test/kube/bed"
	"isolane.dev/isolane/test/kube/bed/bedtest"
	"isolane.dev/isolane/test/kube/image"
)

// cluster is a bed with Isolane's rights and class in it.
type cluster struct {
	*bed.Bed
	node       *bed.Node
	programs   string // folder with isolane-kube, its hook, isolane and spin
	kubeconfig string // of the node part's service account on the node
	part       *exec.Cmd
	log        string // file with the output of the node part
	victim     string // a lane in force, which pods from now on name by annotation
}

const root = "../../.."

// start starts a bed for this test on a host without lanes, and compares the host when the test has ended.
func start(t *testing.T, o bed.Options) *cluster {
	t.Helper()
	c := &cluster{programs: need(t), log: filepath.Join(t.TempDir(), "log")}
	if err := endShared(); err != nil {
		t.Error(err)
	}
	c.sameHost(t)
	o.Program, o.Images = filepath.Join(c.programs, "kubebed"), []image.Image{c.spinning()}
	c.Bed = bedtest.Start(t, o)
	c.install(t)
	c.use(t)
	return c
}

// need builds what tests need, and returns the folder with it. It skips the test on a machine that cannot run
// a bed.
func need(t *testing.T) string {
	t.Helper()
	bedtest.Need(t)
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return programsDir
}

// spinning returns the image of pods.
func (c *cluster) spinning() image.Image {
	entry := []string{"/spin"}
	if rest := bed.Patient(50*time.Millisecond) - 50*time.Millisecond; rest > 0 { // else an emulated node starves
		entry = append(entry, "--rest="+rest.String())
	}
	return image.Image{Name: "kubebed.test/spin:1", Programs: []string{c.programs + "/spin"}, Entrypoint: entry}
}

// install gives a new bed what the node part needs of its cluster.
func (c *cluster) install(t *testing.T) {
	t.Helper()
	var manifests strings.Builder
	for _, name := range []string{"rbac", "deviceclass"} {
		data, err := os.ReadFile(root + "/deploy/kube/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		manifests.WriteString(string(data) + "\n---\n")
	}
	c.kubectl(t, manifests.String(), "apply", "-f", "-")
}

// use makes the first node of the bed that of the test, and looks for what its node part has left.
func (c *cluster) use(t *testing.T) {
	t.Helper()
	c.node = c.Nodes[0]
	t.Cleanup(func() {
		if c.part != nil {
			c.kill(t)
		}
		if t.Failed() {
			t.Logf("isolane-kube:\n%s", c.said())
		}
		if err := c.noLanes(); err != nil {
			t.Error(err)
			out, err := exec.Command(c.programs+"/isolane", "release", "--all").CombinedOutput()
			t.Logf("isolane release --all: %v: %s", err, out)
		}
	})
	c.kubeconfig = c.credentials(t, c.node, "isolane", "isolane-kube")
}

// programsDir is the folder of these tests' programs, and is removed with them.
var programsDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "isolane-kube-test-")
	if err != nil {
		panic(err)
	}
	programsDir = cmp.Or(os.Getenv("ISOLANE_KUBE_PROGRAMS"), dir) // in a machine without Go they are there
	code := m.Run()
	if err = errors.Join(endShared(), os.RemoveAll(dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// build builds them once for all tests.
var build = sync.OnceValue(func() error {
	if os.Getenv("ISOLANE_KUBE_PROGRAMS") != "" {
		return nil
	}
	for _, in := range [][]string{{root, "./cmd/isolane", "./test/fingerprint"}, {root + "/kube", "./cmd/..."},
		{root + "/test/kube", "./cmd/kubebed", "./lanes/spin"}} {
		args := append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", programsDir + "/"}, in[1:]...)
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = in[0], append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: go %v: %w: %s", in[0], args, err, out)
		}
	}
	return nil
})

// sameHost compares the present host with the one after the test.
func (c *cluster) sameHost(t *testing.T) {
	t.Helper()
	before, err := fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := changedSince(before); err != nil {
			t.Error(err)
		}
	})
}

// fingerprint returns the state of the host.
func fingerprint() ([]byte, error) { return exec.Command(programsDir + "/fingerprint").Output() }

// changedSince returns an error if the state of the host is another one.
func changedSince(before []byte) error {
	cmd := exec.Command(programsDir+"/fingerprint", "/proc/self/fd/0") // a machine of the lab has no /dev/stdin
	cmd.Stdin = bytes.NewReader(before)
	out, err := cmd.CombinedOutput()
	var changes []string
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, "/kube-bed") { // of other beds
			changes = append(changes, line)
		}
	}
	if len(changes) > 0 {
		return fmt.Errorf("the host is not as before: %w\n%s", err, changes)
	}
	return nil
}

// credentials returns a file with the credentials of a pod of the DaemonSet: the service account's, bound to
// the node.
func (c *cluster) credentials(t *testing.T, n *bed.Node, namespace, account string) string {
	t.Helper()
	uid := c.kubectl(t, "", "get", "node", n.Name, "-o", "jsonpath={.metadata.uid}")
	token := c.kubectl(t, "", "create", "token", account, "-n", namespace, "--duration=1h",
		"--bound-object-kind=Node", "--bound-object-name="+n.Name, "--bound-object-uid="+uid)
	config := c.kubectl(t, "", "config", "view", "--raw", "--flatten")
	for _, field := range []string{"client-certificate-data", "client-key-data"} {
		config = regexp.MustCompile(`(?m)^    `+field+`: .*\n`).ReplaceAllString(config, "")
	}
	config = regexp.MustCompile(`(?m)^  user:.*\n`).ReplaceAllString(config, "  user:\n    token: "+strings.TrimSpace(token)+"\n")
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// run starts the node part, and waits until it offers CPUs.
func (c *cluster) run(t *testing.T, flags ...string) {
	t.Helper()
	c.runWithout(t, flags...)
	c.offers(t, true)
	c.until(t, "the node part is in the container runtime", func() error {
		if !strings.Contains(c.said(), "msg=synchronized") {
			return errors.New("not yet")
		}
		return nil
	})
}

// runWithout starts the node part, and waits for nothing.
func (c *cluster) runWithout(t *testing.T, flags ...string) {
	t.Helper()
	log, err := os.Create(c.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c.part = c.node.Command(context.WithoutCancel(t.Context()), c.programs+"/isolane-kube",
		append([]string{"node", "--node", c.node.Name, "--kubeconfig", c.kubeconfig}, flags...)...)
	c.part.Stderr = log
	if err = c.part.Start(); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) said() string {
	data, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// kill ends the node part at once.
func (c *cluster) kill(t *testing.T) {
	t.Helper()
	memory, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.part.Process.Pid))
	if err == nil {
		err = c.part.Process.Kill()
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = c.part.Wait() // killed
	used := c.part.ProcessState
	t.Logf("isolane-kube has used %v of CPU time, and at most %s", used.UserTime()+used.SystemTime(),
		regexp.MustCompile(`VmHWM:.*`).Find(memory))
	t.Logf("isolane-kube has said:\n%s", c.said())
	c.part = nil
}

const claimTemplate = `apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: %[1]s}
spec:
  spec:
    devices:
      requests: [{name: lane, exactly: {deviceClassName: lane.isolane.dev, capacity: {requests: {cpus: "1"}}}}]
      config: [{opaque: {driver: isolane.dev, parameters: {apiVersion: isolane.dev/v1alpha1, kind: Lane, spec: %[2]s}}}]
---
`

const podTemplate = `apiVersion: v1
kind: Pod
metadata:
  name: %[1]s
  annotations: {cdi.k8s.io/forged: isolane.dev/lane=%[5]s}
spec:
  terminationGracePeriodSeconds: 1
  %[2]s
  containers: [{name: main, image: "kubebed.test/spin:1", imagePullPolicy: Never, args: ["%[4]s"], resources: {%[3]s},
    env: [{name: ISOLANE_CPUS, value: forged}]}]
`

// podOf returns a pod that names a lane which is not its own.
func (c *cluster) podOf(name, claims, resources, threads string) string {
	return fmt.Sprintf(podTemplate, name, claims, resources, threads, cmp.Or(c.victim, "forged"))
}

// lane applies a pod with a lane of one CPU. spec is the spec of its parameters; "": one with a role.
func (c *cluster) lane(t *testing.T, name, spec, threads string) {
	t.Helper()
	if spec == "" {
		spec = "{roles: {worker: 1}}"
	}
	c.apply(t, name, spec, `claims: [{name: lane}], requests: {cpu: "1"}`, threads)
}

func (c *cluster) apply(t *testing.T, name, spec, resources, threads string) {
	t.Helper()
	claims := "resourceClaims: [{name: lane, resourceClaimTemplateName: " + name + "}]"
	c.kubectl(t, fmt.Sprintf(claimTemplate, name, spec)+c.podOf(name, claims, resources, threads), "apply", "-f", "-")
}

// spin runs a pod without a lane.
func (c *cluster) spin(t *testing.T, name, resources, threads string) {
	t.Helper()
	c.kubectl(t, c.podOf(name, "", resources, threads), "apply", "-f", "-")
	c.ready(t, name)
}

func (c *cluster) ready(t *testing.T, pod string) {
	t.Helper()
	c.readyWithin(t, pod, time.Minute)
}

func (c *cluster) readyWithin(t *testing.T, pod string, limit time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bed.Patient(limit))
	defer cancel()
	if _, err := c.Kubectl(ctx, "", "wait", "--for=condition=Ready", "pod/"+pod, "--timeout=10m"); err != nil {
		events, _ := c.tryKubectl(t, "", "describe", "pod", pod)
		t.Fatal(err, events)
	}
}

func (c *cluster) delete(t *testing.T, name string) {
	t.Helper()
	c.kubectl(t, "", "delete", "pod/"+name, "resourceclaimtemplate/"+name, "--wait", fmt.Sprintf("--timeout=%.0fs", bed.Patient(50*time.Second).Seconds()))
}

func (c *cluster) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := c.tryKubectl(t, stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (c *cluster) tryKubectl(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), bed.Patient(time.Minute))
	defer cancel()
	return c.Kubectl(ctx, stdin, args...)
}

// until waits for at most a minute until something becomes true.
func (c *cluster) until(t *testing.T, what string, is func() error) {
	t.Helper()
	c.untilWithin(t, time.Minute, what, is)
}

func (c *cluster) untilWithin(t *testing.T, limit time.Duration, what string, is func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(bed.Patient(limit)); time.Now().Before(end); time.Sleep(bed.Patient(100 * time.Millisecond)) {
		if err = is(); err == nil {
			return
		}
	}
	t.Fatalf("%s: not within %v: %v", what, bed.Patient(limit), err)
}

// says waits until the events of a pod contain these words.
func (c *cluster) says(t *testing.T, pod string, words ...string) {
	t.Helper()
	text := ""
	c.until(t, "events of pod "+pod, func() (err error) {
		text, err = c.tryKubectl(t, "", "describe", "pod", pod)
		for _, w := range words {
			if err == nil && !strings.Contains(text, w) {
				err = fmt.Errorf("expected %q in\n%s", w, text)
			}
		}
		return err
	})
	for line := range strings.Lines(text) {
		if strings.Contains(line, words[len(words)-1]) {
			t.Logf("kubectl describe pod %s: %s", pod, line)
			return
		}
	}
}

// noLanes returns an error if a lane is in force on the host.
func (c *cluster) noLanes() error {
	out, err := exec.Command(c.programs+"/isolane", "status").CombinedOutput()
	if err == nil && !strings.Contains(string(out), "no lanes are in force") {
		err = errors.New(string(out))
	}
	return err
}

// cpusOf returns the CPUs of a container's lane, as reported by the node part: of POD/CONTAINER, or of a pod
// with one container.
func (c *cluster) cpusOf(t *testing.T, container string) string {
	t.Helper()
	var cpus string
	pod, name, _ := strings.Cut(container, "/")
	c.until(t, container+" has ISOLANE_CPUS", func() error {
		log, err := c.tryKubectl(t, "", "logs", pod, "--container="+cmp.Or(name, "main"))
		m := regexp.MustCompile(`(?m)^ISOLANE_CPUS=(.*)$`).FindStringSubmatch(log)
		if m == nil { // it was started while the node part was away, and ended
			return errors.Join(err, errors.New(log))
		}
		cpus = m[1]
		return nil
	})
	return cpus
}
