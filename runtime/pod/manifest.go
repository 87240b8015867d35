package pod

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"isolane.dev/isolane/lane"
)

// searched are the folders in which programs look for others, because an image may name none.
const searched = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// label marks what this package makes, with the node's name.
const label = "isolane.dev/prove"

// Workload is what a pod is to run.
type Workload struct {
	Name     string // of the pod, and of the template of its claim
	Programs [][]string
	Ready    []string  // what the programs print when they can be used
	Folders  []string  // of the host, to which they may write
	Files    []string  // of the host, which they may read, in addition to its programs and libraries
	Lane     *Lane     // nil: none
	CPUs     int       // whole CPUs of its own from the kubelet; without these and a lane it is BestEffort
	Until    time.Time // when the kubelet ends the pod if nobody else does
}

// Lane is what the pod's claim asks for.
type Lane struct {
	Spec lane.Spec
	Owns int // CPUs, idle siblings included: what the pod requests of the scheduler
}

type object = map[string]any

// manifest returns the pod, with the template of its claim.
func (c Cluster) manifest(w Workload, now time.Time) ([]byte, error) {
	meta := object{"name": w.Name, "labels": object{label: c.Node}}
	container := object{"name": "main", "image": c.Image, "imagePullPolicy": "Never",
		"command": command(w.Programs), "env": []object{{"name": "PATH", "value": searched}}}
	mounts, volumes := w.mounts()
	container["volumeMounts"] = mounts
	spec := object{
		"restartPolicy": "Never", "automountServiceAccountToken": false, "enableServiceLinks": false,
		"terminationGracePeriodSeconds": 1, "activeDeadlineSeconds": max(1, int(w.Until.Sub(now).Seconds())),
		"tolerations": []object{{"operator": "Exists"}},
		"affinity": object{"nodeAffinity": object{"requiredDuringSchedulingIgnoredDuringExecution": object{
			"nodeSelectorTerms": []object{{"matchFields": []object{
				{"key": "metadata.name", "operator": "In", "values": []string{c.Node}}}}}}}},
		"containers": []object{container}, "volumes": volumes,
	}
	items := []object{}
	if w.Lane != nil {
		claim, err := w.Lane.claim()
		if err != nil {
			return nil, err
		}
		items = append(items, object{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
			"metadata": meta, "spec": object{"spec": object{"devices": claim}}})
		spec["resourceClaims"] = []object{{"name": "lane", "resourceClaimTemplateName": w.Name}}
		limits := object{} // without these the kubelet allows it no hugepages
		for page, size := range w.Lane.Spec.Memory.Hugepages {
			limits["hugepages-"+page] = fmt.Sprint(uint64(size))
		}
		requests := object{"cpu": strconv.Itoa(w.Lane.Owns)}
		if size := w.Lane.Spec.Memory.Size; size > 0 {
			requests["memory"] = fmt.Sprint(uint64(size))
		}
		container["resources"] = object{"claims": []object{{"name": "lane"}},
			"requests": requests, "limits": limits}
	}
	if w.CPUs > 0 { // the service class Guaranteed
		container["resources"] = object{"limits": object{"cpu": strconv.Itoa(w.CPUs), "memory": "1Gi"}}
	}
	items = append(items, object{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
	return json.Marshal(object{"apiVersion": "v1", "kind": "List", "items": items})
}

// claim returns the declaration as a claim has it: amounts as capacity, everything else as parameters.
func (l Lane) claim() (object, error) {
	capacity := object{"cpus": strconv.Itoa(l.Spec.CPUs.Count)}
	if l.Spec.Memory.Size > 0 {
		capacity["memory"] = fmt.Sprint(uint64(l.Spec.Memory.Size))
	}
	for page, size := range l.Spec.Memory.Hugepages {
		capacity["hugepages"+page] = fmt.Sprint(uint64(size))
	}
	text, err := json.Marshal(l.Spec)
	var spec object
	if err == nil {
		err = json.Unmarshal(text, &spec)
	}
	if err != nil {
		return nil, err
	}
	if cpus, is := spec["cpus"].(object); is {
		delete(cpus, "count")
	}
	delete(spec, "memory")
	return object{
		"requests": []object{{"name": "lane", "exactly": object{"deviceClassName": "lane.isolane.dev",
			"capacity": object{"requests": capacity}}}},
		"config": []object{{"opaque": object{"driver": "isolane.dev", "parameters": object{
			"apiVersion": lane.APIVersion, "kind": lane.Kind, "spec": spec}}}},
	}, nil
}

// mounts returns the mounts of the host's programs, libraries and user names, and of what the workload names.
// /tmp is in memory.
func (w Workload) mounts() (mounts, volumes []object) {
	add := func(at string, volume object, readOnly bool) {
		name := fmt.Sprint("v", len(volumes))
		volume["name"] = name
		volumes = append(volumes, volume)
		mounts = append(mounts, object{"name": name, "mountPath": at, "readOnly": readOnly})
	}
	for _, dir := range programs() {
		if _, err := os.Stat(dir); err == nil {
			add(dir, object{"hostPath": object{"path": dir}}, true)
		}
	}
	add("/tmp", object{"emptyDir": object{"medium": "Memory"}}, false)
	for _, file := range append([]string{"/etc/passwd", "/etc/group"}, w.Files...) {
		if !slices.ContainsFunc(programs(), func(dir string) bool { return strings.HasPrefix(file, dir+"/") }) {
			add(file, object{"hostPath": object{"path": file, "type": "File"}}, true)
		}
	}
	for _, dir := range w.Folders {
		add(path.Clean(dir), object{"hostPath": object{"path": dir, "type": "Directory"}}, false)
	}
	return mounts, volumes
}

func programs() []string { return []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"} }

// command returns the command line of one program, or of a shell that starts several.
func command(programs [][]string) []string {
	if len(programs) == 1 {
		return programs[0]
	}
	var lines []string
	for _, argv := range programs {
		var words []string
		for _, word := range argv {
			words = append(words, "'"+strings.ReplaceAll(word, "'", `'\''`)+"'")
		}
		lines = append(lines, strings.Join(words, " ")+" &")
	}
	return []string{"/bin/sh", "-c", strings.Join(append(lines, "wait"), "\n")}
}
