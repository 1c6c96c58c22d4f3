# The machines of a published study in one placement group. Not applied by us: no account. What it costs is yours to look up before `apply`.
#
#   terraform init && terraform apply -var study=streamnative-2020 -var key_name=my-key -var my_address=203.0.113.4/32
#   terraform output -raw inventory > ../ansible/inventory.ini
#   cd ../ansible && ansible-playbook -i inventory.ini -e @studies/streamnative-2020.yaml -e gauge=/path/to/gauge site.yaml

terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 5.0"
    }
  }
}

variable "region" {
  type    = string
  default = "us-west-2"
}

variable "key_name" {
  type        = string
  description = "An SSH key pair that the account has."
}

variable "my_address" {
  type        = string
  description = "Who may log in, as a CIDR block: nobody else reaches these machines from outside."
}

variable "study" {
  type        = string
  default     = "streamnative-2020"
  description = "Whose machines: kesque-2019, confluent-2020, streamnative-2020 or streamnative-2022."
}

module "machines" {
  source = "./studies"
  study  = var.study
}

provider "aws" {
  region = var.region
}

data "aws_ami" "debian" {
  most_recent = true
  owners      = ["136693071363"] # Debian
  filter {
    name   = "name"
    values = ["debian-12-amd64-*"]
  }
}

data "aws_vpc" "default" {
  default = true
}

resource "aws_security_group" "bench" {
  name   = "streamgauge"
  vpc_id = data.aws_vpc.default.id

  ingress {
    description = "logging in"
    from_port   = 22
    to_port     = 22
    protocol    = "tcp"
    cidr_blocks = [var.my_address]
  }

  # Brokers speak without passwords, so only these machines reach them.
  ingress {
    description = "among themselves"
    from_port   = 0
    to_port     = 0
    protocol    = "-1"
    self        = true
  }

  egress {
    from_port   = 0
    to_port     = 0
    protocol    = "-1"
    cidr_blocks = ["0.0.0.0/0"]
  }
}

resource "aws_placement_group" "bench" {
  name     = "streamgauge"
  strategy = "cluster"
}

# One resource for all machines; the lab runs on the first load machine, beside its worker: it only waits while load runs.
resource "aws_instance" "machine" {
  for_each      = module.machines.all
  ami           = data.aws_ami.debian.id
  instance_type = each.value.type
  key_name      = var.key_name
  # Burstable types are in no cluster placement group.
  placement_group        = startswith(each.value.type, "t") ? null : aws_placement_group.bench.id
  vpc_security_group_ids = [aws_security_group.bench.id]
  tags                   = { Name = "streamgauge-${each.key}" }
}

output "inventory" {
  description = "For Ansible: logged in to from outside, measured inside."
  value = join("\n", concat(
    flatten([for group in ["brokers", "zookeeper", "load"] : concat(
      ["[${group}]"],
      [for name, one in module.machines.all : "${name} ansible_host=${aws_instance.machine[name].public_ip} inside=${aws_instance.machine[name].private_ip} node=${one.node}" if one.group == group],
      [""],
    )]),
    ["[all:vars]", "ansible_user=admin", ""],
  ))
}
