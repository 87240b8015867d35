package node

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	cdi "tags.cncf.io/container-device-interface/specs-go"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
)

const (
	cdiKind = offer.Driver + "/lane"
	// hookInContainer is where the containers of a lane find the hook.
	hookInContainer = "/.isolane-hook"
	// tempPrefix begins the names of files while they are written.
	tempPrefix = ".isolane-"
	// podAnnotation is the annotation in a claim's file with the uid of the pod for which it was written.
	podAnnotation = offer.Driver + "/pod"
)

// edit is what the containers of a claim's device get from the container runtime.
type edit struct {
	lane  string
	parts []plan.Lane // the lane itself, or its parts for several containers
	env   []string    // for the lane itself
}

// args returns the arguments of the hook: the name of the lane, the memory nodes of all its containers, under
// a name that no container has, its CPUs, and those of single containers.
func (e edit) args() []string {
	var nodes cpuset.Set
	var shares []string
	for _, p := range e.parts {
		text := p.CPUs.String()
		if container := ask.Container(p); container != "" {
			text = container + "=" + text
		}
		nodes, shares = nodes.Union(p.MemoryNodes), append(shares, text)
	}
	return append([]string{hookInContainer, e.lane, "Memory=" + nodes.String()}, shares...)
}

// deviceID returns the name of a lane's device for the kubelet and the container runtime.
func deviceID(lane string) string { return cdiKind + "=" + lane }

// laneOfDevice returns the lane of a device with such a name.
func laneOfDevice(id string) (string, bool) { return strings.CutPrefix(id, cdiKind+"=") }

func (n *Node) cdiFile(uid string) string {
	return filepath.Join(n.CDI, strings.ReplaceAll(cdiKind, "/", "-")+"-"+filepath.Base(uid)+".json")
}

// writeCDI writes what the containers of a claim get from the container runtime: what isolane run tells a
// workload, and a hook that stops a container that would start outside of its lane, even if the runtime goes
// on without this program. The lane stays with the pod for which the file was first written.
func (n *Node) writeCDI(uid, pod string, edits []edit) error {
	spec := cdi.Spec{Version: "0.6.0", Kind: cdiKind, Annotations: map[string]string{podAnnotation: pod}}
	for _, e := range edits {
		spec.Devices = append(spec.Devices, cdi.Device{Name: e.lane, ContainerEdits: cdi.ContainerEdits{Env: e.env,
			Mounts: []*cdi.Mount{{HostPath: n.hookPath(), ContainerPath: hookInContainer,
				Options: []string{"bind", "ro", "nosuid", "nodev"}}},
			Hooks: []*cdi.Hook{{HookName: "startContainer", Path: hookInContainer, Args: e.args()}}}})
	}
	return n.saveCDI(uid, spec)
}

// saveCDI writes the file of a claim.
func (n *Node) saveCDI(uid string, spec cdi.Spec) error {
	data, err := json.MarshalIndent(spec, "", " ")
	if err != nil {
		return err
	}
	if err = os.MkdirAll(n.CDI, 0o755); err != nil {
		return err
	}
	return writeFile(n.cdiFile(uid), append(data, '\n'), 0o644)
}

// preparedFor returns the uid of the pod for which a claim's file was written, or "" if there is none.
func (n *Node) preparedFor(uid string) (string, error) {
	spec, err := n.loadCDI(uid)
	return spec.Annotations[podAnnotation], err
}

// loadCDI reads the file of a claim. If there is none the result is empty.
func (n *Node) loadCDI(uid string) (spec cdi.Spec, err error) {
	data, err := os.ReadFile(n.cdiFile(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return spec, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &spec)
	}
	return spec, err
}

// recordFirstPods writes a claim's first pod into its file if an older version has not, so that no other pod
// gets the lane when that pod ends.
func (n *Node) recordFirstPods(ctx context.Context) {
	for _, c := range n.nodeClaims() {
		spec, err := n.loadCDI(string(c.UID))
		if err == nil && spec.Kind != "" && spec.Annotations[podAnnotation] == "" && len(c.Status.ReservedFor) > 0 {
			spec.Annotations = map[string]string{podAnnotation: string(c.Status.ReservedFor[0].UID)}
			err = n.saveCDI(string(c.UID), spec)
		}
		if err != nil {
			n.Log.WarnContext(ctx, "file of a claim", "claim", c.Namespace+"/"+c.Name, "err", err)
		}
	}
}

func (n *Node) removeCDI(uid string) error {
	err := os.Remove(n.cdiFile(uid))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return err
}

// removeStaleCDI removes files of claims that a kill has left: partly written ones, and those of claims that
// are gone and have no lane. The kubelet does not ask about claims that it does not know.
func (n *Node) removeStaleCDI(l *lanes.Lanes) error {
	half, err := filepath.Glob(filepath.Join(n.CDI, tempPrefix+"*"))
	hooks, herr := filepath.Glob(filepath.Join(filepath.Dir(n.hookPath()), tempPrefix+"*"))
	whole, werr := filepath.Glob(n.cdiFile("*"))
	before, after, _ := strings.Cut(n.cdiFile("*"), "*")
	mine := n.nodeClaims()
	for _, name := range whole {
		uid := strings.TrimSuffix(strings.TrimPrefix(name, before), after)
		has := slices.ContainsFunc(mine, func(c *resourceapi.ResourceClaim) bool { return string(c.UID) == uid })
		if !has && len(lanesOf(l, uid)) == 0 {
			half = append(half, name)
		}
	}
	err = errors.Join(err, herr, werr)
	for _, name := range slices.Concat(half, hooks) {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// hookPath returns the path from which containers get the hook. It remains when this program's own files go.
func (n *Node) hookPath() string { return filepath.Join(n.Kubelet, "plugins", offer.Driver, "hook") }

// installHook copies the hook there.
func (n *Node) installHook() error {
	data, err := os.ReadFile(n.Hook)
	if err != nil {
		return err
	}
	if err = os.MkdirAll(filepath.Dir(n.hookPath()), 0o755); err != nil {
		return err
	}
	return writeFile(n.hookPath(), data, 0o755)
}

// writeFile replaces a file atomically: readers see the new content or the old. The name of the temporary
// file is hidden, so that programs that watch the directory ignore it.
func writeFile(name string, data []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(name), tempPrefix+"*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
