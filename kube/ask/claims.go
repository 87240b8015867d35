package ask

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// AllCounted returns a pod as if the scheduler had counted all CPUs of its claims.
func AllCounted(pod *corev1.Pod, claims []*resourceapi.ResourceClaim) *corev1.Pod {
	pod = pod.DeepCopy()
	all := &pod.Status.NodeAllocatableResourceClaimStatuses
	for _, c := range claims {
		cpus := corev1.NodeAllocatableMappedResources{Name: corev1.ResourceCPU,
			Quantity: resource.NewQuantity(math.MaxInt32, resource.DecimalSI)}
		*all = append(*all, corev1.NodeAllocatableResourceClaimStatus{ResourceClaimName: c.Name,
			Mapping: []corev1.NodeAllocatableMappedResources{cpus}})
	}
	return pod
}

// ClaimsOf returns the names of the claims of a pod.
func ClaimsOf(pod *corev1.Pod) (names []string) {
	for _, c := range pod.Spec.ResourceClaims {
		if c.ResourceClaimName != nil {
			names = append(names, *c.ResourceClaimName)
		}
	}
	for _, s := range pod.Status.ResourceClaimStatuses {
		if s.ResourceClaimName != nil {
			names = append(names, *s.ResourceClaimName)
		}
	}
	return names
}
