package cores

import (
	"cmp"
	"fmt"
	"strings"

	"isolane.dev/isolane/cpuset"
)

// taskset writes a prefix for a command (taskset(1), numactl(8)).
func taskset(r Request) (string, error) {
	text := "taskset -c " + r.Lane.CPUs.String()
	if !r.Lane.MemoryNodes.IsEmpty() {
		text += " numactl --membind=" + r.Lane.MemoryNodes.String()
	}
	return text + "\n", nil
}

// openMP writes environment variables (OpenMP API specification, OMP_PLACES): a thread on each CPU, siblings
// side by side.
func openMP(r Request) (string, error) {
	cpus, _ := r.byCore()
	var places []string
	for _, id := range cpus {
		places = append(places, fmt.Sprintf("{%d}", id))
	}
	return fmt.Sprintf("OMP_NUM_THREADS=%d\nOMP_PLACES='%s'\nOMP_PROC_BIND=close\n",
		len(cpus), strings.Join(places, ",")), nil
}

// nginx writes directives (nginx: Core functionality, worker_cpu_affinity): a worker on each CPU. A mask is a
// binary number.
func nginx(r Request) (string, error) {
	var masks []string
	for id := range r.Lane.CPUs.All() {
		masks = append(masks, "1"+strings.Repeat("0", id))
	}
	return fmt.Sprintf("worker_processes %d;\nworker_cpu_affinity %s;\n",
		len(masks), strings.Join(masks, " ")), nil
}

// kubelet writes a KubeletConfiguration for a kubelet beside the lanes (Kubernetes: Control CPU Management
// Policies on the Node): pods get housekeeping. It reserves everything that lanes own, including idle
// siblings, and the boot core for the host's own work. The policy is strict, so that pods without CPUs of
// their own stay off these too. The result is the same for all lanes of the host.
func kubelet(r Request) (string, error) {
	var owned cpuset.Set
	for _, l := range r.Lanes {
		owned = owned.Union(l.Owned())
	}
	boot := r.Cores[0].Difference(owned) // Write has checked that there are cores
	left := r.online().Difference(owned).Difference(boot)
	if left.IsEmpty() {
		return "", fmt.Errorf("lanes own CPUs %s, and beside the boot core no CPU is left for pods", owned)
	}
	return fmt.Sprintf(`# Pods get CPUs %s. Lanes own %s; %s is for the host itself.
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
cpuManagerPolicyOptions:
  full-pcpus-only: "true"
  strict-cpu-reservation: "true" # from Kubernetes 1.33; `+
		`before it, pods of the shared pool reach reserved CPUs
topologyManagerPolicy: single-numa-node
reservedSystemCPUs: "%s"
`, left, owned, orNone(boot), owned.Union(boot)), nil
}

func orNone(cpus cpuset.Set) string { return cmp.Or(cpus.String(), "no CPU") }
