package cores

import (
	"fmt"
	"strings"
)

// taskset writes a prefix for a command (taskset(1), numactl(8)).
func taskset(r Request) (string, error) {
	text := "taskset -c " + r.Lane.CPUs.String()
	if !r.Lane.MemoryNodes.IsEmpty() {
		text += " numactl --membind=" + r.Lane.MemoryNodes.String()
	}
	return text + "\n", nil
}

// openMP writes environment (OpenMP API specification, OMP_PLACES): a thread to each CPU, siblings side
// by side.
func openMP(r Request) (string, error) {
	cpus, _ := r.byCore()
	var places []string
	for _, id := range cpus {
		places = append(places, fmt.Sprintf("{%d}", id))
	}
	return fmt.Sprintf("OMP_NUM_THREADS=%d\nOMP_PLACES='%s'\nOMP_PROC_BIND=close\n", len(cpus), strings.Join(places, ",")), nil
}

// nginx writes directives (nginx: Core functionality, worker_cpu_affinity): a worker to each CPU, whose
// mask is a binary number.
func nginx(r Request) (string, error) {
	var masks []string
	for id := range r.Lane.CPUs.All() {
		masks = append(masks, "1"+strings.Repeat("0", id))
	}
	return fmt.Sprintf("worker_processes %d;\nworker_cpu_affinity %s;\n", len(masks), strings.Join(masks, " ")), nil
}

// kubelet writes a KubeletConfiguration that keeps housekeeping from pods and gives whole cores of one
// node (Kubernetes: Control CPU Management Policies on the Node). It is about the host and not one lane.
func kubelet(r Request) (string, error) {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true"}
topologyManagerPolicy: single-numa-node
reservedSystemCPUs: "%s"
`, r.Housekeeping), nil
}
