package results

// Pods says whose pods the application and the neighbours were.
type Pods struct {
	Node    string `json:"node"`
	Kubelet string `json:"kubelet"` // its version
	Image   string `json:"image"`   // below the host's programs, which the pods ran
}
