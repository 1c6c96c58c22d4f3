# Seven machines in one placement group, as the published studies had them: three brokers (i3en.2xlarge: 8 vCPUs, 64 GiB, two
# local NVMe disks) and four load machines. Not applied by us: no account. What it costs is yours to look up before `apply`.
#
#   terraform init && terraform apply -var key_name=my-key -var my_address=203.0.113.4/32
#   terraform output -raw inventory > ../ansible/inventory.ini

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

variable "broker_type" {
  type    = string
  default = "i3en.2xlarge"
}

variable "load_type" {
  type    = string
  default = "c5n.2xlarge" # of the studies, one named its load machines: m5n.8xlarge (StreamNative 2022)
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

resource "aws_instance" "broker" {
  count                  = 3
  ami                    = data.aws_ami.debian.id
  instance_type          = var.broker_type
  key_name               = var.key_name
  placement_group        = aws_placement_group.bench.id
  vpc_security_group_ids = [aws_security_group.bench.id]
  tags                   = { Name = "streamgauge-broker-${count.index + 1}" }
}

# The lab runs on the first of them, beside its worker: it only waits while load runs.
resource "aws_instance" "load" {
  count                  = 4
  ami                    = data.aws_ami.debian.id
  instance_type          = var.load_type
  key_name               = var.key_name
  placement_group        = aws_placement_group.bench.id
  vpc_security_group_ids = [aws_security_group.bench.id]
  tags                   = { Name = "streamgauge-load-${count.index + 1}" }
}

output "inventory" {
  description = "For Ansible: logged in to from outside, measured inside."
  value = join("\n", concat(
    ["[brokers]"],
    [for i, one in aws_instance.broker : "broker-${i + 1} ansible_host=${one.public_ip} inside=${one.private_ip} node=${i + 1}"],
    ["", "[load]"],
    [for i, one in aws_instance.load : "load-${i + 1} ansible_host=${one.public_ip} inside=${one.private_ip}"],
    ["", "[all:vars]", "ansible_user=admin", ""],
  ))
}
