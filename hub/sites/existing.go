package sites

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"

	"isolane.dev/isolane/hub/api"
)

// oldestKubernetes is the first release of Kubernetes with what the hub needs: admission rules in CEL.
const oldestKubernetes = "1.30"

// Check says what an existing Kubernetes lacks for a hub. It changes nothing.
func Check(ctx context.Context, core kubernetes.Interface) error {
	is, err := core.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("--kubeconfig: expected a Kubernetes that answers: %w", err)
	}
	v, err := version.ParseGeneric(is.GitVersion)
	if err != nil || v.LessThan(version.MustParseGeneric(oldestKubernetes)) {
		return fmt.Errorf("--kubeconfig: expected Kubernetes %s or newer, found %s", oldestKubernetes,
			is.GitVersion)
	}
	for _, need := range []authorizationv1.ResourceAttributes{
		{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions", Verb: "create"},
		{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies", Verb: "create"},
		{Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Verb: "escalate"},
		{Group: "rbac.authorization.k8s.io", Resource: "rolebindings", Verb: "create"},
		{Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Verb: "bind"},
		{Group: "certificates.k8s.io", Resource: "certificatesigningrequests", Verb: "create"},
		{Group: "certificates.k8s.io", Resource: "signers", Name: certificatesv1.KubeAPIServerClientSignerName,
			Verb: "approve"},
		{Resource: "secrets", Namespace: "kube-system", Verb: "create"},
		{Resource: "namespaces", Verb: "create"},
		{Resource: "namespaces", Name: metav1.NamespaceSystem, Verb: "patch"},
		{Group: api.Group, Resource: "*", Verb: "*"},
	} {
		r, err := core.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
			&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &need}}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("--kubeconfig: expected a user that may ask for its rights: %w", err)
		}
		if !r.Status.Allowed {
			return fmt.Errorf("--kubeconfig: its user may not %s %s.%s: expected one with the rights of "+
				"ClusterRole cluster-admin", need.Verb, need.Resource, need.Group)
		}
	}
	return nil
}

// ask has the cluster sign a host's certificate, because its API server trusts no other authority. It passes
// the request on unchanged.
func (s *Signer) ask(ctx context.Context, r *certificatesv1.CertificateSigningRequest,
	request *x509.CertificateRequest, subject pkix.Name, life time.Duration) ([]byte, error) {
	if !slices.Equal(request.Subject.Organization, subject.Organization) || len(request.Subject.Names) != 2 ||
		len(request.Extensions) > 0 {
		return nil, refuse("expected a request for %s of organization %s, and nothing else",
			subject.CommonName, subject.Organization[0])
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	requests, seconds := s.Core.CertificatesV1().CertificateSigningRequests(), int32(life.Seconds())
	passed, err := requests.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "isolane-signs-" + string(r.UID)},
		Spec: certificatesv1.CertificateSigningRequestSpec{Request: r.Spec.Request, ExpirationSeconds: &seconds,
			SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature,
				certificatesv1.UsageClientAuth}},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		passed, err = requests.Get(ctx, "isolane-signs-"+string(r.UID), metav1.GetOptions{})
	}
	if err == nil {
		passed, err = s.decide(ctx, passed, certificatesv1.CertificateApproved, "a host of isolane-hub")
	}
	for err == nil && len(passed.Status.Certificate) == 0 {
		if decided(passed, certificatesv1.CertificateFailed) {
			last := passed.Status.Conditions[len(passed.Status.Conditions)-1]
			return nil, refuse("the cluster does not sign it: %s", last.Message)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the cluster has not signed %s within 30 s: expected a controller manager with "+
				"the signer %s", passed.Name, certificatesv1.KubeAPIServerClientSignerName)
		case <-time.After(200 * time.Millisecond):
		}
		passed, err = requests.Get(ctx, passed.Name, metav1.GetOptions{})
	}
	if err != nil {
		return nil, err
	}
	return passed.Status.Certificate, requests.Delete(ctx, passed.Name, metav1.DeleteOptions{})
}
